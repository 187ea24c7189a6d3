// Puts fragments that the service sends in the place of older ones.
"use strict";
const place = document.querySelector("[data-live]");
if (place) {
  const events = new EventSource(place.dataset.live);
  events.addEventListener("job", (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    const now = template.content.firstElementChild;
    const before = document.getElementById(now.id);
    if (before) before.replaceWith(now);
    else place.prepend(now);
    if ("ended" in now.dataset) events.close();
  });
  events.addEventListener("behind", () => location.reload());
}
