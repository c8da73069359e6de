// Rows as comma-separated values.

const IS_NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

const SIGN = /^[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u207a-\u207c\u208a-\u208c\u2212]/;

/** What spreadsheets leave out at the beginning of a cell: blanks, quotes and characters without a width. */
const IGNORED = /^[\s"\0\x1c-\x1f\x85\u200b-\u200f\u2060\ufeff]+/;

/** What parts cells or lines in some spreadsheet, whatever the delimiter and the quotes of the file are. */
const SEPARATORS = /([,;|\t\n\r\v\f\x1c-\x1f\x85\u2028\u2029])/;

const isNumber = (text) => IS_NUMBER.test(text.trim()) && !text.includes("\ufeff");

function isFormula(part) {
  const rest = part.replace(IGNORED, "");
  return SIGN.test(rest) && !isNumber(rest);
}

/** A text with an apostrophe before each part that a spreadsheet would compute. Numbers stay. */
function harmless(text) {
  const broken = /^[\t\r\n]/.test(text);
  if (isNumber(text) && !broken) return text;
  if (broken) {
    const rest = text.replace(IGNORED, "");
    const start = text.length - rest.length + (SIGN.test(rest) ? 1 : 0);
    return `'${text.slice(0, start)}${harmless(text.slice(start))}`;
  }
  return text.split(SEPARATORS).map((part) => (isFormula(part) ? `'${part}` : part)).join("");
}

/** A cell, in quotes where it needs them, and where it was made harmless. */
function csvCell(text) {
  const safe = harmless(text);
  return safe !== text || /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
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
