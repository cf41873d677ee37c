// The class names: chips, a list with one a line, or a set of the service; and method and settings.

const at = (id) => document.getElementById(id);
let own = [];
let sets = {};
let methods = [];

export function showChoices(labelSets, described) {
  sets = labelSets;
  methods = described;
  at("label-set").replaceChildren(new Option("my own", ""), ...Object.keys(sets).map((name) => new Option(name, name)));
  at("set-field").hidden = Object.keys(sets).length === 0;
  at("label-set").value = Object.keys(sets)[0] ?? "";
  at("method").replaceChildren(...methods.map((one) => new Option(one.name.replaceAll("_", "-"), one.name)));
  at("method").value = (methods.find((one) => one.default) ?? methods[0]).name;
  showMethod();
  show();
}

export function classNames() {
  return at("label-set").value ? sets[at("label-set").value] : own;
}

export function chosenMethod() {
  return methods.find((one) => one.name === at("method").value);
}

export function formOf(explains) {
  const form = new FormData();
  if (at("label-set").value) form.append("label_set", at("label-set").value);
  else form.append("labels", `${own.join("\n")}\n`);
  if (!explains) {
    form.append("method", at("method").value);
    form.append("prompts", at("prompts").value);
    if (at("unknown").value) form.append("unknown", `probability=${at("unknown").value}`);
  }
  if (at("preset").value) form.append("preset", at("preset").value);
  if (at("plain").value) form.append("plain", at("plain").value);
  if (at("seed").value.trim()) form.append("seed", at("seed").value.trim());
  for (const word of at("settings").value.split(/\s+/).filter(Boolean)) form.append("settings", word);
  return form;
}

export function onLabels(callback) {
  document.addEventListener("labels", callback);
}

function show() {
  const names = classNames();
  const fixed = Boolean(at("label-set").value);
  at("chips").replaceChildren(...names.slice(0, 200).map((name, index) => chip(name, index, fixed)));
  const more = names.length > 200 ? `, the first 200 shown` : "";
  at("label-count").textContent = names.length ? `${names.length} class${names.length === 1 ? "" : "es"}${more}` : "No classes yet: add at least two.";
  at("new-label").disabled = at("add-label").disabled = fixed;
  at("list-details").hidden = fixed;
  if (document.activeElement !== at("label-list")) at("label-list").value = own.join("\n");
  document.dispatchEvent(new Event("labels"));
}

function chip(name, index, fixed) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  if (fixed) button.disabled = true;
  else button.setAttribute("aria-label", `Remove ${name}`);
  button.addEventListener("click", () => {
    own = own.filter((_, other) => other !== index);
    show();
    (at("chips").querySelectorAll("button")[Math.min(index, own.length - 1)] ?? at("new-label")).focus();
  });
  item.append(button);
  return item;
}

function add(text) {
  const names = text.split(/[\n,]/).map((name) => name.trim()).filter(Boolean);
  own = [...new Set([...own, ...names])];
  at("new-label").value = "";
  show();
}

function showMethod() {
  const method = chosenMethod();
  const settings = Object.entries(method.settings);
  at("summary").textContent = method.summary;
  at("defaults").textContent = settings.length
    ? `Now: ${settings.map(([name, value]) => `${name}=${value ?? "none"}`).join(" ")}`
    : "It has no settings.";
}

at("label-set").addEventListener("change", show);
at("method").addEventListener("change", showMethod);
at("add-label").addEventListener("click", () => {
  add(at("new-label").value);
  at("new-label").focus();
});
at("new-label").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== ",") return;
  event.preventDefault();
  add(at("new-label").value);
});
at("new-label").addEventListener("paste", (event) => {
  const text = event.clipboardData.getData("text");
  if (!/[\n,]/.test(text)) return;
  event.preventDefault();
  add(text);
});
at("label-list").addEventListener("input", () => {
  own = at("label-list").value.split("\n").map((name) => name.trim()).filter(Boolean);
  show();
});
