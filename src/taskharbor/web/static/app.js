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
    if (event.target.closest("#said")) {
      document.getElementById("said").focus();
      questions().forEach(place); // the line has moved their buttons
    }
    if (event.target.id !== "main" || document.activeElement !== document.body) return;
    const words = document.getElementById("said");
    (words && words.textContent.trim() ? words : document.getElementById("main")).focus({ preventScroll: true });
  });

  // A form that is refused stays as it is, and the line above it says why. Other errors come as whole pages.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, requestConfig, pathInfo } = event.detail;
    if (xhr.status < 400) return;
    event.detail.isError = false;
    event.detail.shouldSwap = Boolean(xhr.getResponseHeader("HX-Retarget"));
    if (event.detail.shouldSwap) return;
    if (requestConfig.verb === "get") location.assign(pathInfo.finalRequestPath);
    else say(`The server answered ${xhr.status}: load the page again to see what came of it.`);
  });
  const say = (words) => {
    const place = document.getElementById("said");
    const line = document.createElement("p");
    line.className = "said bad";
    line.textContent = words;
    place.replaceChildren(line);
    place.focus();
  };
  for (const failure of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(failure, (event) => {
      if (event.detail.requestConfig.verb !== "get") say("The server does not answer: load the page again to see what came of it.");
    });
  }

  // What is on its way is not sent twice.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.verb === "get") return;
    for (const button of event.detail.elt.querySelectorAll("button:enabled")) {
      button.disabled = true;
      button.ariaBusy = "true";
    }
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    for (const button of event.detail.elt.querySelectorAll('button[aria-busy="true"]')) {
      button.disabled = false;
      button.ariaBusy = null;
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
  // It lies over the page and inside the window, wherever its button is.
  const place = (open) => {
    const pop = open.querySelector(".pop");
    pop.classList.add("placed");
    const button = open.querySelector("summary").getBoundingClientRect();
    const wide = document.documentElement.clientWidth - pop.offsetWidth - 8;
    const high = window.innerHeight - pop.offsetHeight - 8;
    const above = button.top - pop.offsetHeight - 5;
    const top = button.bottom + 5 <= high || above < 8 ? Math.min(button.bottom + 5, high) : above;
    pop.style.left = `${Math.max(8, Math.min(button.right - pop.offsetWidth, wide))}px`;
    pop.style.top = `${Math.max(8, top)}px`;
  };
  document.addEventListener("toggle", (event) => event.target.matches("details.ask[open]") && place(event.target), true);
  for (const moved of ["scroll", "resize"]) addEventListener(moved, () => questions().forEach(place), { capture: true, passive: true });
  document.addEventListener("click", (event) => {
    for (const open of questions()) if (!open.contains(event.target)) open.open = false;
  });
})();
