(() => {
  // Titles as tips that come at once, by touch too. Without this script they are the browser's own.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  for (const title of document.querySelectorAll("svg title")) {
    const owner = title.parentElement;
    owner.dataset.tip = title.textContent;
    title.remove();
  }
  for (const owner of document.querySelectorAll("[title]")) {
    owner.dataset.tip = owner.title;
    owner.setAttribute("aria-label", owner.title);
    owner.removeAttribute("title");
  }
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointerover", (event) => {
    const owner = event.target.closest?.("[data-tip]");
    if (!owner) { hide(); return; }
    tip.textContent = owner.dataset.tip;
    tip.hidden = false;
    place(event);
  });
  const place = (event) => {
    if (tip.hidden) return;
    const gap = 14, box = tip.getBoundingClientRect();
    let left = event.clientX + gap, top = event.clientY + gap;
    if (left + box.width > innerWidth - 8) left = Math.max(8, event.clientX - box.width - gap);
    if (top + box.height > innerHeight - 8) top = Math.max(8, event.clientY - box.height - gap);
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  };
  document.addEventListener("pointermove", place);
  document.addEventListener("scroll", hide, { passive: true });
})();
