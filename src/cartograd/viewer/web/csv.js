// Rows as comma-separated values.

const IS_NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

/** A cell. One that a spreadsheet would take for a formula gets an apostrophe before it, so that it is text there, too. */
function csvCell(text) {
  const formula = /^[=+\-@\t\r]/.test(text) && !IS_NUMBER.test(text);
  const safe = formula ? `'${text}` : text;
  return formula || /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The lines of a file, each with its end: row number, coordinates, every column. */
function* csvLines(data, rows) {
  const axes = ["x", "y", "z"].slice(0, data.dimensions);
  yield `${["row", ...axes, ...data.columns.map((column) => column.name)].map(csvCell).join(",")}\r\n`;
  for (const row of rows) {
    const cells = [String(row), ...axes.map((axis, at) => String(coordinate(data, row, at)))];
    for (const column of data.columns) cells.push(csvCell(column.exact(row)));
    yield `${cells.join(",")}\r\n`;
  }
}

/** Hand a text to the reader as a file. */
function saveText(name, lines) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([...lines], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
