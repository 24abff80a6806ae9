// Ties the views together: tabs, what the server is, whether it can be reached.

import { getJson, useKey } from "./api.js";
import { byId } from "./dom.js";
import { startLive } from "./live.js";
import { allowChat, startPlayground } from "./playground.js";
import { raceChat, startRace } from "./race.js";

const tabs = [...document.querySelectorAll('[role="tab"]')];
let lookNow = () => {};

function show(tab, focus = false) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.ariaSelected = String(chosen);
    one.tabIndex = chosen ? 0 : -1;
    byId(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  lookNow();
}

/** Show a view because somebody chose it. Not on load: a new fragment would make Tab start behind the tabs. */
function choose(tab, focus) {
  show(tab, focus);
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => choose(tab, false));
  tab.addEventListener("keydown", (event) => {
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 }[event.key];
    if (next !== undefined) choose(tabs.at(next % tabs.length), true);
  });
}

/** Tell of trouble with the connection, and take it back once it is over. */
function state(error) {
  const banner = byId("connection");
  const unknown = error?.status === 401;
  if (unknown) byId("key-form").hidden = false;
  const words = unknown ? "This server asks for an API key." : error?.status === 0 ? "The server cannot be reached; trying again …" : "";
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = !words;
  if (error?.status === 0) setTimeout(connect, 2000);
}

let connecting = false;
async function connect() {
  if (connecting) return;
  connecting = true;
  try {
    const about = await getJson("version");
    byId("about").textContent = `${about.model} · drafter ${about.drafter} · policy ${about.policy}`;
    allowChat(about.chat);
    raceChat(about.chat);
    state(null);
  } catch (error) {
    state(error);
  } finally {
    connecting = false;
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value.trim());
  connect();
});

startPlayground(state);
startRace(state);
lookNow = startLive(() => !byId("live").hidden && !document.hidden, state);
show(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
connect();
