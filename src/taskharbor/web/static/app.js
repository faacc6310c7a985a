// What every page has: times that stay true, and a place for the focus after a piece of the page was replaced.
// Pages work without any of this.
"use strict";

(() => {
  const rough = (seconds) => {
    for (const [limit, unit, part] of [[90, "s", 1], [5400, "min", 60], [129600, "h", 3600]]) {
      if (seconds < limit) return `${Math.round(seconds / part)} ${unit}`;
    }
    return `${Math.round(seconds / 86400).toLocaleString("en")} d`;
  };

  // The clock of this machine may be wrong: what counts is the time since the server said it.
  const said = new WeakMap();
  const pattern = /^(?:in )?(\d[\d,]*) (s|min|h|d)(?: ago)?$|^just now$/;
  const units = { s: 1, min: 60, h: 3600, d: 86400 };

  const keepTimesTrue = () => {
    const now = performance.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      let known = said.get(time);
      if (!known) {
        const found = pattern.exec(time.textContent);
        if (!found) continue;
        const length = found[1] ? Number(found[1].replaceAll(",", "")) * units[found[2]] : 0;
        known = { age: time.textContent.startsWith("in ") ? -length : length, at: now };
        said.set(time, known);
      }
      const age = known.age + (now - known.at) / 1000;
      const text = Math.abs(age) < 1 ? "just now" : age > 0 ? `${rough(age)} ago` : `in ${rough(-age)}`;
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(keepTimesTrue, 1000);

  // A form that replaced the page takes the focus with it; what was said is where to go on.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.id !== "main" || document.activeElement !== document.body) return;
    const words = document.getElementById("said");
    (words && words.textContent.trim() ? words : document.getElementById("main")).focus({ preventScroll: true });
  });

  // Errors come as whole pages: they are shown as such.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const status = event.detail.xhr.status;
    if (status >= 400) {
      event.detail.shouldSwap = false;
      location.assign(event.detail.requestConfig.verb === "get" ? event.detail.pathInfo.finalRequestPath : location.href);
    }
  });

  // One box for all boxes of a table.
  document.addEventListener("change", (event) => {
    const all = event.target;
    if (!(all instanceof HTMLInputElement) || !all.dataset.all) return;
    for (const box of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  });

  // Escape closes an open question, and goes back to what opened it; a click elsewhere closes it too.
  const questions = () => document.querySelectorAll("details.ask[open]");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const open of questions()) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  });
  document.addEventListener("click", (event) => {
    for (const open of questions()) if (!open.contains(event.target)) open.open = false;
  });
})();
