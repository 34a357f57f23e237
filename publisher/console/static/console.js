// Keeps an open page as it is on the server, by server-sent events. Nothing is asked for while the page is hidden or paused.
"use strict";

const main = document.querySelector("main[data-live]");
const content = document.getElementById("content");
const said = document.getElementById("live");
const pause = document.getElementById("pause");
let source = null;
let paused = false;

function say(text, isBad) {
  if (said.textContent !== text) said.textContent = text;
  said.classList.toggle("bad", Boolean(isBad));
}

// Only what differs is put in, so that nothing moves under a reader; a link that has the focus keeps it, a table its scroll position.
function show(html) {
  const next = new DOMParser().parseFromString(html, "text/html").body;
  const focused = content.contains(document.activeElement) ? document.activeElement : null;
  const href = focused && focused.getAttribute("href");
  for (const part of next.querySelectorAll("section[id]")) {
    const old = document.getElementById(part.id);
    if (!old || old.innerHTML === part.innerHTML) continue;
    const left = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceChildren(...part.childNodes);
    old.querySelectorAll(".scroll").forEach((each, n) => { each.scrollLeft = left[n] || 0; });
  }
  if (focused && !focused.isConnected && href) {
    const again = [...content.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
    if (again) again.focus({ preventScroll: true });
  }
}

function close() {
  if (source) source.close();
  source = null;
}

function open() {
  if (source || paused || document.hidden) return;
  source = new EventSource(main.dataset.live);
  source.addEventListener("page", (event) => { show(event.data); say("live"); });
  source.addEventListener("trouble", (event) => say(event.data, true));
  source.onerror = () => {
    const isOver = source && source.readyState === EventSource.CLOSED;
    say(isOver ? "not live: load the page again" : "the console does not answer; trying again", true);
  };
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Continue" : "Pause";
  if (paused) { close(); say("paused"); } else { open(); }
});
open();
