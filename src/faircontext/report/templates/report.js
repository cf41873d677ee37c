"use strict";
// What the page shows of the data in it. Names and paths come from files: they are set as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const OUTCOMES = [
  ["0", "fixed", "Fixed"], ["1", "broke", "Broke"], ["3", "wrong", "Still wrong"], ["2", "right", "Still right"],
  ["4", "unlabelled", "No label"],
];
const WORDS = { 0: "Fixed: zero-shot was wrong", 1: "Broke: zero-shot was right", 2: "Still right", 3: "Still wrong",
  4: "No label" };
const CHUNK = 60;
const ALL = "all";
const ANY = ""; // of classes, which may be called "all"
const NONE = "(none of these)";
const MOST = 30; // classes of the matrix
const collator = new Intl.Collator();
const state = { group: 0, set: ALL, method: "", outcome: ALL, class: ANY, answer: ANY, evidence: false };
let chosen = []; // all images of the data set and method, as [panel, position]
let matching = []; // those of them that the filters let through
let shown = 0;

const at = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function fill(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => {
    const option = element("option", "", text);
    option.value = key;
    return option;
  }));
  select.value = options.some(([key]) => String(key) === String(value)) ? value : options[0][0];
  return select.value;
}

// The images of a data set and method, those first that the method changed; those without a label least sure first.
function choose() {
  const order = { 0: 0, 1: 1, 3: 2, 2: 3, 4: 4 };
  const parts = [[], [], [], [], []];
  for (const panel of data.panels) {
    const found = panel.group === state.group && panel.methods[state.method];
    if (!found || (state.set !== ALL && panel.set !== Number(state.set))) continue;
    for (let position = 0; position < found.outcome.length; position++) {
      if (found.outcome[position] !== ".") parts[order[found.outcome[position]]].push([panel, position]);
    }
  }
  const sure = ([panel, position]) => (panel.methods[state.method].confidence || [])[position] ?? 0;
  parts[4].sort((one, two) => sure(one) - sure(two));
  return parts.flat();
}

const outcomeOf = ([panel, position]) => panel.methods[state.method].outcome[position];
const classOf = ([panel, position]) => panel.names[panel.labels[position]];
const answerOf = ([panel, position]) => {
  const found = panel.methods[state.method];
  found.none ??= new Set(found.withheld);
  return found.none.has(position) ? NONE : panel.names[found.answers[position]];
};
const evidenceOf = ([panel, position]) => data.evidence[panel.evidence[position]];

function count(items, key) {
  const counts = new Map();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) || 0) + 1);
  return counts;
}

function showOutcomes(items) {
  const counts = count(items, outcomeOf);
  const wanted = OUTCOMES.filter(([sign]) => (state.method !== "zero_shot" || sign > 1)
    && (sign !== "4" || counts.has("4")) && chosen.some((item) => outcomeOf(item) !== "4"));
  if (!wanted.some(([sign]) => sign === state.outcome)) state.outcome = ALL;
  const kinds = [[ALL, ALL, "All"], ...wanted];
  at("outcomes").hidden = kinds.length === 1;
  at("outcomes").replaceChildren(...kinds.map(([sign, kind, text]) => {
    const zero = { right: "Right", wrong: "Wrong" };
    const word = state.method === "zero_shot" && zero[kind] ? zero[kind] : text;
    const number = sign === ALL ? items.length : counts.get(sign) || 0;
    const button = element("button", "", `${word} ${number.toLocaleString("en")}`);
    button.type = "button";
    button.dataset.outcome = kind;
    button.setAttribute("aria-pressed", String(state.outcome === sign));
    button.addEventListener("click", () => {
      state.outcome = sign;
      filter();
      at("outcomes").querySelector("[aria-pressed=true]").focus();
    });
    return button;
  }));
}

function filter() {
  const inClass = chosen.filter((item) => (state.class === ANY || classOf(item) === state.class)
    && (state.answer === ANY || answerOf(item) === state.answer) && (!state.evidence || evidenceOf(item)));
  showOutcomes(inClass);
  matching = inClass.filter((item) => state.outcome === ALL || outcomeOf(item) === state.outcome);
  shown = 0;
  at("cards").replaceChildren();
  more();
}

function more() {
  const next = matching.slice(shown, shown + CHUNK);
  at("cards").append(...next.map(card));
  shown += next.length;
  const number = (value) => value.toLocaleString("en");
  at("counter").textContent = `${number(matching.length)} of ${number(chosen.length)} image${chosen.length === 1 ? "" : "s"}`
    + (shown < matching.length ? `, the first ${number(shown)} shown` : " shown");
  at("more").hidden = shown === matching.length;
  at("more").textContent = `Show ${number(Math.min(CHUNK, matching.length - shown))} more`;
}

function image(text, what) {
  const made = element("img");
  made.src = `data:image/jpeg;base64,${text}`;
  made.alt = what;
  return made;
}

function picture([panel, position], what) {
  const number = panel.pictures[position];
  if (number < 0) {
    return element("div", "picture none", number === -1 ? "no picture in this page" : "no picture: see the notes");
  }
  const made = element("div", "picture");
  made.append(image(data.thumbnails[number], what));
  return made;
}

function card(item) {
  const [panel, position] = item;
  const found = panel.methods[state.method];
  const group = data.groups[state.group];
  const title = group.methods.find(([name]) => name === state.method)[1];
  const sign = found.outcome[position];
  const kind = OUTCOMES.find(([other]) => other === sign)[1];
  const zero = state.method === "zero_shot";
  const truth = classOf(item) ?? "not known";
  const made = element("li", `card ${kind}`);
  const top = element("div");
  const said = element("div", "said");
  const tick = (index) => (panel.labels[position] < 0 ? "" : index === panel.labels[position] ? "✓ " : "✗ ");
  const mark = (index) => `${tick(index)}${panel.names[index] ?? "no answer"}`;
  const withheld = (method) => panel.methods[method]?.withheld.includes(position);
  const given = (method, index) => (withheld(method) ? "(none of these)" : mark(index));
  said.append(element("strong", "", zero ? { 2: "Right", 3: "Wrong", 4: "No label" }[sign] : WORDS[sign]));
  const rows = [...(sign === "4" ? [] : [["True class", truth]]), ["Zero-shot", given("zero_shot", panel.zero[position])]];
  if (!zero) rows.push([title, given(state.method, found.answers[position])]);
  if (withheld(state.method)) rows.push(["Otherwise", mark(found.answers[position])]);
  if (found.confidence && found.confidence[position] !== null) {
    rows.push(["Confidence", `${(found.confidence[position] / 10).toFixed(1)}%`]);
  }
  if (found.votes && found.votes[position] !== null) rows.push(["Votes", String(found.votes[position])]);
  const fallback = found.fallback ? found.fallback.names[found.fallback.indices[position]] : "";
  if (fallback) rows.push(["Fallback", fallback]);
  const list = element("dl");
  for (const [name, value] of rows) list.append(element("dt", "", name), element("dd", "", value));
  said.append(list);
  top.append(picture(item, `Image of class ${truth}`), said);
  made.append(top);
  if (evidenceOf(item)) made.append(maps(evidenceOf(item)));
  made.append(element("p", "path", `${panel.title}: ${panel.paths[position]}`));
  return made;
}

function maps(evidence) {
  const names = evidence.names.map((name) => `evidence of ${name}`);
  if (evidence.pictures.length > names.length) names.push("common evidence");
  const made = element("div", "maps");
  made.append(...evidence.pictures.map((text, number) => {
    const figure = element("figure");
    figure.append(image(text, `Map over the image: ${names[number]}`), element("figcaption", "", names[number]));
    return figure;
  }));
  return made;
}

// Names that images have, each with how many have it, to choose one of them.
function offer(id, items, nameOf, what) {
  const names = [...count(items, nameOf)].sort(([one], [two]) => collator.compare(one, two));
  const options = names.map(([name, number]) => [name, `${name} (${number.toLocaleString("en")})`]);
  state[id] = fill(at(id), [[ANY, `all ${names.length.toLocaleString("en")} ${what}`], ...options], state[id]);
  at(`${id}-label`).hidden = names.length === 0;
}

function showCell(truth, answer) {
  state.class = at("class").value = truth;
  state.answer = at("answer").value = answer;
  state.outcome = ALL;
  state.evidence = at("evidence").checked = false;
  filter();
  at("images").scrollIntoView();
}

// Which class is taken for which: a row for each class, a column for each answer, and behind each number its images.
function showConfusion(items) {
  const pair = (item) => [classOf(item), answerOf(item)];
  const counts = count(items, (item) => JSON.stringify(pair(item)));
  const sizes = count(items, classOf);
  const errors = count(items.map(pair).filter(([truth, answer]) => truth !== answer).flat(), (name) => name);
  const all = [...new Set(items.flatMap(pair))];
  all.sort((one, two) => (errors.get(two) || 0) - (errors.get(one) || 0));
  const names = all.slice(0, MOST).sort(collator.compare);
  const line = (first, cells) => {
    const row = element("tr");
    row.append(element("th", "", first), ...cells);
    return row;
  };
  const cellOf = (truth, answer) => {
    const cell = element("td");
    const number = counts.get(JSON.stringify([truth, answer]));
    if (!number) return cell;
    const button = element("button", "", number.toLocaleString("en"));
    button.type = "button";
    button.style.setProperty("--share", number / sizes.get(truth));
    button.setAttribute("aria-label", `${number} of class ${truth}, answer ${answer}`);
    button.addEventListener("click", () => showCell(truth, answer));
    cell.append(button);
    return cell;
  };
  const rows = names.filter((name) => sizes.has(name)).map((truth) => line(truth, names.map((name) => cellOf(truth, name))));
  at("matrix").replaceChildren(line("", names.map((name) => element("th", "", name))), ...rows);
  at("confusion").hidden = items.length === 0;
  at("confusion-note").textContent = "Images by true class (rows) and answer (columns); a number leads to its images."
    + (all.length > MOST ? ` The ${MOST} classes in most errors.` : "");
}

// Another data set or method: tables and charts of it, its classes, and its images.
function show() {
  const everything = state.set === ALL;
  const group = data.groups[state.group];
  const title = group.methods.find(([name]) => name === state.method)[1];
  for (const part of document.querySelectorAll("[data-group]")) part.hidden = Number(part.dataset.group) !== state.group;
  for (const figure of document.querySelectorAll("figure[data-method]")) figure.hidden = figure.dataset.method !== state.method;
  for (const row of document.querySelectorAll("tr[data-method]")) {
    const own = row.dataset.method === state.method;
    const bySet = row.dataset.set !== undefined;
    row.hidden = bySet && (everything ? !own : row.dataset.set !== state.set);
    row.classList.toggle("chosen", own && !(bySet && everything));
  }
  for (const part of document.querySelectorAll(".sets .wide")) { // the column that says the same in each row
    part.classList.toggle("all-sets", everything);
    part.classList.toggle("one-set", !everything);
  }
  for (const heading of document.querySelectorAll(".by-set")) {
    heading.textContent = everything ? `${title} on each data set` : `All methods on ${group.sets[Number(state.set)]}`;
  }
  chosen = choose();
  const labelled = chosen.filter((item) => classOf(item) !== undefined);
  offer("class", labelled, classOf, "classes");
  offer("answer", chosen, answerOf, "answers");
  showConfusion(labelled);
  const some = chosen.some(evidenceOf);
  at("evidence-label").hidden = !some;
  state.evidence = some && at("evidence").checked;
  at("hint").hidden = some || chosen.length === 0;
  at("hint").textContent = data.hint;
  filter();
}

function chooseGroup() {
  const group = data.groups[state.group];
  state.set = fill(at("set"), [[ALL, "all data sets"], ...group.sets.map((name, position) => [String(position), name])], ALL);
  const wanted = group.methods.some(([name]) => name === state.method) ? state.method : "fcl";
  const last = group.methods[group.methods.length - 1][0];
  state.method = fill(at("method"), group.methods, group.methods.some(([name]) => name === wanted) ? wanted : last);
  show();
}

fill(at("group"), data.groups.map((group, number) => [String(number), group.title]), "0");
at("group").addEventListener("change", (event) => { state.group = Number(event.target.value); chooseGroup(); });
for (const name of ["set", "method"]) {
  at(name).addEventListener("change", (event) => { state[name] = event.target.value; show(); });
}
for (const name of ["class", "answer"]) {
  at(name).addEventListener("change", (event) => { state[name] = event.target.value; filter(); });
}
at("evidence").addEventListener("change", (event) => { state.evidence = event.target.checked; filter(); });
at("more").addEventListener("click", () => {
  const before = shown;
  more();
  const first = at("cards").children[before];
  first.tabIndex = -1;
  first.focus({ preventScroll: true });
});
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
chooseGroup();
