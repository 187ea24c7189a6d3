// Live fragments of the service take the place of older ones, and directories are browsed without
// loading the page again. Every page works without this, but for what is live.
"use strict";

const announce = (text) => {
  const place = document.querySelector("[data-announce]");
  if (place) place.textContent = text;
};

// Puts a new element in the place of an older one and leaves the focus; of an article, only the
// parts that differ.
function patch(before, now) {
  if (before.isEqualNode(now)) return;
  const [older, newer] = [[...before.children], [...now.children]];
  const ids = (parts) => parts.map((part) => part.id).join();
  if (now.matches("article") && ids(older) === ids(newer)) {
    newer.forEach((part, index) => patch(older[index], part));
    for (const { name, value } of now.attributes) before.setAttribute(name, value);
    return;
  }
  const active = before.contains(document.activeElement) ? document.activeElement.id : null;
  before.replaceWith(now);
  if (active === null) return;
  const next = (active && document.getElementById(active)) || document.getElementById("title");
  if (next) next.focus({ preventScroll: true });
}

const live = document.querySelector("[data-live]");
if (live) {
  const events = new EventSource(live.dataset.live);
  events.addEventListener("job", (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    const now = template.content.firstElementChild;
    const before = document.getElementById(now.id);
    const { state, ended } = now.dataset;
    if (state && before && before.dataset.state !== state) announce(`The job is ${state}.`);
    if (ended !== undefined) events.close();
    if (before) patch(before, now);
    else if ("newest" in live.dataset) live.prepend(now);
  });
  events.addEventListener("behind", () => location.reload());
}

const form = document.querySelector("[data-browse]");
if (form) {
  // The number of the last request of each side: answers of earlier ones come too late.
  const last = {};
  const open = async (side, at) => {
    const pane = form.querySelector(`[data-pane="${side}"]`);
    const number = (last[side] = (last[side] || 0) + 1);
    pane.setAttribute("aria-busy", "true");
    announce(`Reading ${at}`);
    let text = null;
    try {
      const query = new URLSearchParams({ side, at });
      const answer = await fetch(`/new/pane?${query}`, { headers: { Accept: "text/html" } });
      if (answer.ok) text = await answer.text();
    } catch {
      // The service can't be reached: below.
    }
    if (number !== last[side]) return;
    pane.removeAttribute("aria-busy");
    if (text === null) {
      announce("The service doesn't answer.");
      return;
    }
    pane.innerHTML = text;
    form.elements[side].value = at;
    const summary = document.getElementById(`${side}-at`);
    announce(summary ? summary.textContent : pane.textContent.trim());
    if (summary) summary.focus({ preventScroll: true });
  };
  form.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-at]");
    const button = event.target.closest("button[data-open]");
    if (event.ctrlKey || event.metaKey || event.shiftKey || !(link || button)) return;
    event.preventDefault();
    const side = button ? button.dataset.open : link.closest("[data-pane]").dataset.pane;
    open(side, button ? form.elements[side].value.trim() : link.dataset.at);
  });
  form.addEventListener("keydown", (event) => {
    const { name } = event.target;
    if (event.key !== "Enter" || event.isComposing || !(name === "source" || name === "target")) return;
    event.preventDefault();
    open(name, event.target.value.trim());
  });
}
