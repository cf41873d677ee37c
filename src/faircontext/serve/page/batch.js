// Several photos: a few in a request, a table that sorts and filters, and the same rows as CSV.

import { ask } from "./api.js";
import { chosenMethod, classNames, formOf, onLabels } from "./labels.js";

const at = (id) => document.getElementById(id);
const COLUMNS = ["file", "prediction", "zero_shot", "confidence", "votes", "method", "seconds", "error"];
let rows = [];
let running = null;
let order = { key: "position", falling: false };
let most = { images: 100, bytes: 200e6, file: 20e6 };
let failed = () => {};

export function onBatchFailure(callback) {
  failed = callback;
}

export function limitBatch(limits) {
  most = { images: limits.images, bytes: 0.8e6 * limits.request_mb, file: 1e6 * limits.file_mb };
}

export function takePhotos(files) {
  for (const file of files) rows.push({ position: rows.length + 1, file: file.name || "photo", source: file, state: "waiting" });
  show();
}

async function start() {
  if (running) return;
  running = new AbortController();
  failed(null);
  show();
  try {
    for (let group = next(); group.length; group = next()) await answerSome(group, running.signal);
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  } finally {
    const stopped = running.signal.aborted;
    running = null;
    show(stopped ? "Stopped. " : "");
  }
}

// What is answered next: few where each is adapted, so that progress shows; never more than a request may hold.
function next() {
  const waiting = rows.filter((row) => row.state === "waiting");
  for (const row of waiting.filter((row) => row.source.size > most.file)) {
    Object.assign(row, { state: "error", error: `larger than ${most.file / 1e6} MB` });
  }
  const group = [];
  let bytes = 0;
  const few = Math.min(chosenMethod().uses_views ? 2 : 16, most.images);
  for (const row of waiting.filter((row) => row.state === "waiting")) {
    if (group.length === few || (group.length && bytes + row.source.size > most.bytes)) break;
    group.push(row);
    bytes += row.source.size;
  }
  return group;
}

async function answerSome(group, signal) {
  const form = formOf(false);
  for (const row of group) form.append("images", row.source, row.file);
  const found = await ask("v1/classify", form, signal);
  group.forEach((row, index) => {
    const entry = found.answers[index];
    const error = entry.error || entry.fallback;
    Object.assign(row, entry, { state: entry.error ? "error" : "done", error, file: row.file });
  });
  show();
}

function kindOf(row) {
  if (row.state !== "done") return row.state;
  if (!row.prediction) return "unknown";
  return row.prediction === row.zero_shot ? "same" : "changed";
}

function shown() {
  const word = at("filter").value.trim().toLowerCase();
  const kind = at("kind").value;
  const fits = (row) => (kind === "all" || kindOf(row) === kind)
    && [row.file, row.prediction, row.zero_shot].some((text) => (text ?? "").toLowerCase().includes(word));
  const value = (row) => row[order.key] ?? "";
  const compare = (a, b) => typeof value(a) === "number" && typeof value(b) === "number"
    ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)));
  const sorted = rows.filter(fits).sort((a, b) => compare(a, b) || a.position - b.position);
  return order.falling ? sorted.reverse() : sorted;
}

function show(before = "") {
  const done = rows.filter((row) => row.state !== "waiting").length;
  const errors = rows.filter((row) => row.state === "error").length;
  const visible = shown();
  at("answers").tBodies[0].replaceChildren(...visible.map(line));
  at("progress").max = Math.max(1, rows.length);
  at("progress").value = done;
  const hidden = visible.length < rows.length ? ` ${visible.length} shown.` : "";
  at("batch-status").textContent = rows.length
    ? `${before}${done} of ${rows.length} answered${errors ? `, ${errors} of them unreadable` : ""}.${hidden}` : "No photos yet.";
  at("sideways").hidden = rows.length === 0;
  at("start").disabled = running !== null || done === rows.length || classNames().length === 0;
  at("stop").disabled = running === null;
  at("clear").disabled = running !== null || rows.length === 0;
  at("csv").disabled = done === 0;
  for (const head of at("answers").tHead.querySelectorAll("th")) {
    const sorted = head.firstElementChild.dataset.key === order.key;
    if (sorted) head.setAttribute("aria-sort", order.falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

function line(row) {
  row.line ??= document.createElement("tr");
  row.line.className = kindOf(row);
  if (!row.thumbnail) row.thumbnail = thumbnail(row);
  const confidence = row.confidence == null ? "" : `${(100 * row.confidence).toFixed(1)} %`;
  const answer = row.state === "error" ? "unreadable" : row.state === "done" ? row.prediction || "none of these" : "";
  const texts = [row.position, row.file, answer, row.zero_shot, confidence, row.votes, row.error];
  const cells = texts.map((text, index) => {
    const cell = document.createElement("td");
    cell.textContent = text ?? "";
    if (index === 4 || index === 5) cell.className = "number";
    return cell;
  });
  if (row.error) cells[1].append(reason(row.error));
  const first = document.createElement("td");
  first.append(row.thumbnail);
  row.line.replaceChildren(first, ...cells);
  return row.line;
}

// What the last column says, which a narrow page shows under the name.
function reason(text) {
  const made = document.createElement("span");
  made.className = "reason";
  made.textContent = text;
  return made;
}

// Drawn small once, so that a thousand photos are not kept decoded.
function thumbnail(row) {
  const holder = document.createElement("div");
  holder.className = "blank";
  createImageBitmap(row.source, { resizeWidth: 96, resizeQuality: "medium" }).then((bitmap) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const picture = document.createElement("img");
    picture.alt = "";
    picture.src = canvas.toDataURL("image/jpeg", 0.8);
    row.thumbnail = picture;
    holder.replaceWith(picture);
  }, () => {});
  return holder;
}

export function csvText() {
  const quoted = (value) => {
    const text = value == null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = shown().filter((row) => row.state !== "waiting");
  return [COLUMNS, ...lines.map((row) => COLUMNS.map((name) => row[name]))].map((cells) => `${cells.map(quoted).join(",")}\n`).join("");
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvText()], { type: "text/csv" }));
  link.download = "answers.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

onLabels(() => show());
at("start").addEventListener("click", start);
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  rows = [];
  show();
});
at("csv").addEventListener("click", download);
at("filter").addEventListener("input", () => show());
at("kind").addEventListener("change", () => show());
for (const button of at("answers").tHead.querySelectorAll("button")) {
  button.addEventListener("click", () => {
    const key = button.dataset.key;
    order = { key, falling: order.key === key && !order.falling };
    show();
  });
}
