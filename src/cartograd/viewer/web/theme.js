// Runs before anything is painted: light or dark, as the link says, else as the reader's system has it.
(() => {
  const asked = new URLSearchParams(location.hash.slice(1)).get("theme");
  const dark = asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
