// The keyboard: everything the mouse can do, and a way to the search field.

const KEY_STEP = 60;

/** What each key does on the map. */
function keyActions(app) {
  const step = (right, down) => (event) =>
    app.data.width === 3 && !event.altKey ? app.turnBy(-right / 400, -down / 400) : app.panBy(right, down);
  const centre = (factor) => () => app.zoomBy(factor, app.camera.width / 2, app.camera.height / 2);
  return {
    ArrowLeft: step(KEY_STEP, 0), ArrowRight: step(-KEY_STEP, 0),
    ArrowUp: step(0, KEY_STEP), ArrowDown: step(0, -KEY_STEP),
    "+": centre(1.4), "=": centre(1.4), "-": centre(1 / 1.4), _: centre(1 / 1.4),
    0: () => app.fit(), Home: () => app.fit(),
    Enter: () => app.pinCentre(), n: () => app.pinNext(1), p: () => app.pinNext(-1),
  };
}

/** Keys that work wherever the focus is, unless it is in a field. */
function pageActions(app) {
  return {
    "/": () => app.search.field.focus(),
    l: () => app.lasso.setActive(!app.lasso.active),
    t: () => app.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true),
    "?": () => document.getElementById("help").showModal(),
    Escape: () => app.escape(),
  };
}

function listenToKeys(app) {
  const [onMap, onPage] = [keyActions(app), pageActions(app)];
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const typing = target.closest?.("input, select, textarea, dialog[open]") && target.type !== "range";
    if (typing || event.ctrlKey || event.metaKey) return;
    const action = (target === app.canvas || target === document.body ? onMap[event.key] : null) ?? onPage[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}
