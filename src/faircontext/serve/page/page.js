// The page: what the service offers, tabs, and files that are dropped, pasted or chosen.

import { ask, useToken } from "./api.js";
import { limitBatch, onBatchFailure, takePhotos } from "./batch.js";
import { showChoices } from "./labels.js";
import { onFailure, takePhoto } from "./photo.js";

const at = (id) => document.getElementById(id);
const tabs = [at("tab-photo"), at("tab-batch")];

function fail(error) {
  at("problem").hidden = error === null;
  at("problem").textContent = error?.message ?? "";
  if (error?.status === 401) at("access").hidden = false;
}

async function load() {
  try {
    const [labels, methods, models] = await Promise.all(["v1/labels", "v1/methods", "v1/models"].map((path) => ask(path)));
    at("access").hidden = true;
    fail(null);
    limitBatch(models.limits);
    showChoices(labels.label_sets, methods.methods);
    at("model").textContent = `Model ${models.model.backbone}, in ${models.model.precision}; faircontext ${models.version}.`;
  } catch (error) {
    at("model").textContent = "";
    fail(error);
  }
}

function choose(tab, focus = false) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    at(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
}

function take(files, several) {
  const taken = [...files];
  if (taken.length === 0) return;
  if (several || taken.length > 1) {
    choose(tabs[1]);
    takePhotos(taken);
  } else takePhoto(taken[0]);
}

function dropOn(zone, several) {
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take(event.dataTransfer.files, several);
  });
}

for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") choose(tabs[1 - index], true);
  });
}
for (const [id, several] of [["photo-file", false], ["photo-camera", false], ["batch-files", true]]) {
  at(id).addEventListener("change", () => {
    take(at(id).files, several);
    at(id).value = "";
  });
}
dropOn(at("photo-drop"), false);
dropOn(at("batch-drop"), true);
// A file that misses its place must not replace the page.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
document.addEventListener("paste", (event) => take(event.clipboardData?.files ?? [], !at("batch").hidden));
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(at("token").value.trim());
  load();
});
onFailure(fail);
onBatchFailure(fail);
load();
