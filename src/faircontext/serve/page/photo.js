// One photo: what the model answers, what the method changed, and on what evidence.

import { ask } from "./api.js";
import { chosenMethod, classNames, formOf, onLabels } from "./labels.js";

const at = (id) => document.getElementById(id);
const percent = (value) => `${(100 * value).toFixed(1)} %`;
let file = null;
let running = null;
let explained = null;
let failed = () => {};

export function onFailure(callback) {
  failed = callback;
}

// What is seen is the answer to the last question, or none: a new photo ends the question before it.
export function takePhoto(taken) {
  file = taken;
  running?.abort();
  running = null;
  at("cancel").hidden = at("result").hidden = true;
  at("photo-status").textContent = "";
  failed(null);
  at("photo-name").textContent = file.name || "a pasted photo";
  URL.revokeObjectURL(at("preview").src);
  at("preview").src = URL.createObjectURL(file);
  ready();
  if (!at("ask").disabled) answer();
}

function ready() {
  at("ask").disabled = !file || classNames().length === 0 || running !== null;
}

async function answer() {
  if (running) return;
  const mine = running = new AbortController();
  const name = file.name || "photo";
  at("cancel").hidden = false;
  at("result").hidden = true;
  at("photo-status").textContent = "Looking at the photo …";
  failed(null);
  ready();
  try {
    const explains = chosenMethod().name === "fcl" && at("prompts").value === "single";
    const form = formOf(explains);
    form.append(explains ? "image" : "images", file, name);
    const answered = await ask(explains ? "v1/explain" : "v1/classify", form, mine.signal);
    if (running === mine) show(answered, explains, name);
  } catch (error) {
    if (running !== mine) return;
    at("photo-status").textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error.name !== "AbortError") failed(error);
  } finally {
    if (running === mine) {
      running = null;
      at("cancel").hidden = true;
      ready();
    }
  }
}

function show(answered, explains, name) {
  if (explains) showExplained(answered);
  else showAnswered(answered, name);
  at("photo-status").textContent = `Answered: ${at("answer").textContent}.`;
  at("result").hidden = false;
  at("answer").focus();
}

function showExplained(found) {
  explained = found;
  const low = Math.fround(found.confidence) < Math.fround(at("unknown").value);  // as the service compares them
  at("answer").textContent = low ? "none of these" : found.headline;
  at("words").textContent = found.in_words;
  showNotes([...found.warnings, found.fallback].filter(Boolean));
  at("bars-title").textContent = `The ${found.candidates.length} candidates, before and after`;
  at("before-name").textContent = "before: the plain prompt";
  at("after-name").textContent = found.learnt ? "after: the prompt learnt on this photo" : "after: nothing was learnt";
  showBars(found.candidates, found.answer, true);
  showViews(found);
  at("evidence").hidden = found.maps.length === 0;
  if (found.maps.length === 0) return;
  at("under").src = found.pictures.image;
  at("candidate").replaceChildren(...found.candidates.map((one, index) => new Option(one.name, index)));
  showRivals();
}

function showAnswered(found, name) {
  const entry = found.answers[0];
  if (entry.error) throw new Error(`${name}: ${entry.error}`);
  explained = null;
  at("answer").textContent = entry.headline;
  const changed = entry.prediction === entry.zero_shot ? "Zero-shot says the same." : `Zero-shot says ${entry.zero_shot}.`;
  const votes = entry.votes === null ? "" : ` ${entry.votes} views voted for it.`;
  at("words").textContent = `${percent(entry.confidence)} among ${classNames().length} classes, by ${entry.method}.${votes} ${changed}`;
  showNotes([...found.warnings, ...entry.warnings, entry.fallback].filter(Boolean));
  at("bars-title").textContent = "The most probable classes";
  at("before-name").textContent = "before: zero-shot";
  at("after-name").textContent = `after: ${entry.method}`;
  const rows = entry.top.map((one) => ({ name: one.name, before: one.zero_shot, after: one.probability }));
  showBars(rows, entry.prediction, false);
  at("evidence").hidden = at("voters").hidden = true;
}

function showNotes(lines) {
  at("notes").replaceChildren(...lines.map((line) => element("li", line)));
}

function showBars(rows, answer, voted) {
  at("votes-head").hidden = !voted;
  const lines = rows.map((row) => {
    const line = element("tr", "", "row");
    line.className = row.name === answer ? "answer" : "";
    const head = element("th", row.name, "rowheader");
    head.scope = "row";
    const bars = element("td", "", "cell");
    bars.className = "bars";
    bars.append(bar("before", row.before), bar("after", row.after));
    line.append(head, bars, number(percent(row.before)), number(percent(row.after)));
    if (voted) line.append(number(row.votes_before === row.votes_after ? row.votes_after : `${row.votes_before} → ${row.votes_after}`));
    return line;
  });
  at("bars").tBodies[0].replaceChildren(...lines);
}

function bar(kind, value) {
  const line = element("div", "");
  line.className = `bar ${kind}`;
  line.style.width = `${100 * value}%`;
  return line;
}

function showViews(found) {
  at("voters").hidden = found.views.length === 0;
  at("views-title").textContent = `The ${found.views.length} of ${found.all_views} views that voted, the surest first`;
  at("views").replaceChildren(...found.views.map((view) => {
    const item = document.createElement("li");
    const picture = document.createElement("img");
    picture.src = found.pictures[view.picture];
    picture.alt = view.plain ? "The whole picture" : "A crop of the picture";
    item.append(picture, view.vote);
    return item;
  }));
}

function showRivals() {
  const chosen = Number(at("candidate").value);
  const others = explained.candidates.map((one, index) => [one.name, index]).filter(([, index]) => index !== chosen);
  const known = others.filter(([, index]) => contrast(chosen, index));
  at("rival").replaceChildren(new Option("nothing: alone", ""), ...known.map(([name, index]) => new Option(name, index)));
  showMap();
}

function contrast(first, second) {
  const digits = (value) => String(value).padStart(2, "0");
  const picture = `contrast_${digits(Math.min(first, second))}_${digits(Math.max(first, second))}`;
  return explained.contrasts.find((one) => one.picture === picture);
}

function showMap() {
  const chosen = Number(at("candidate").value);
  const rival = at("rival").value;
  const map = rival === "" ? explained.candidates[chosen] : contrast(chosen, Number(rival));
  at("over").src = explained.pictures[map.picture];
  at("over").style.opacity = at("strength").value / 100;
  const first = rival === "" ? map.name : map.first;
  const what = rival === ""
    ? `Orange marks where hiding lowers ${first} more than elsewhere, blue where less.`
    : `Orange marks where hiding costs ${first} more than ${map.second}, blue where it costs ${map.second} more.`;
  at("over").alt = rival === "" ? `Evidence of ${first}` : `Evidence of ${first} against ${map.second}`;
  const trust = map.reliable
    ? `This map would come out the same again (${map.reliability.toFixed(2)}).`
    : `This map says little: with other masks it would be another (${(map.reliability ?? 0).toFixed(2)}).`;
  at("trust").textContent = `${what} ${trust}`;
}

// The role is said where a narrow page shows a table's parts as blocks, which may cost them theirs.
function element(kind, text, role = null) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (role) made.setAttribute("role", role);
  return made;
}

function number(text) {
  const cell = element("td", text, "cell");
  cell.className = "number";
  return cell;
}

onLabels(ready);
at("ask").addEventListener("click", answer);
at("cancel").addEventListener("click", () => running?.abort());
at("candidate").addEventListener("change", showRivals);
at("rival").addEventListener("change", showMap);
at("strength").addEventListener("input", () => {
  at("over").style.opacity = at("strength").value / 100;
});
