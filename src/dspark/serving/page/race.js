// The race: the same request without drafts and with, one after the other, then replayed side by side.

import { answer, explain, speedOf } from "./answer.js";
import { byId, make, numberOf } from "./dom.js";
import { TokenText } from "./tokens.js";

class Lane {
  constructor(id, draft) {
    this.draft = draft;
    this.tokens = new TokenText();
    this.clock = make("p", "clock", "–");
    this.bar = make("progress", "", [], { value: 0, max: 1, ariaLabel: "Tokens so far" });
    this.note = make("p", "detail", "");
    byId(id).append(this.clock, this.bar, this.note, this.tokens.box, this.tokens.detail);
    this.reset(1);
  }

  reset(max) {
    this.log = [];
    this.found = null;
    this.show(0, max);
    this.note.textContent = "";
  }

  show(count, max) {
    this.tokens.clear();
    this.clock.textContent = "–";
    this.bar.max = max;
    this.bar.value = count;
  }

  add(pieces, time) {
    this.tokens.add(pieces);
    this.bar.value = this.tokens.pieces.length;
    this.clock.textContent = `${(time / 1000).toFixed(2)} s`;
  }

  async run(request, signal) {
    this.note.textContent = "running …";
    this.found = await answer(request, {
      draft: this.draft, signal, onPieces: (pieces, time) => {
        this.log.push([pieces, time]);
        this.add(pieces, time);
      },
    });
    this.bar.max = this.bar.value = Math.max(this.tokens.pieces.length, 1);
    const speed = speedOf(this.found);
    this.note.textContent = `${this.found.usage.completion_tokens} tokens${speed === null ? "" : `, ${speed.toFixed(1)} tokens/s`}`;
  }

  /** Show again what came when, counted from the first token; resolves at the last one. */
  async replay(stopped) {
    this.show(0, this.bar.max);
    const start = performance.now();
    for (const [pieces, time] of this.log) {
      const due = time - this.found.first;
      const wait = due - (performance.now() - start);
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      if (stopped()) return;
      this.add(pieces, due);
    }
  }
}

export function startRace(onError) {
  const lanes = [new Lane("lane-plain", false), new Lane("lane-dspark", true)];
  let running = null;
  const busy = (controller) => {
    running = controller;
    byId("race-start").disabled = controller !== null;
    byId("race-stop").disabled = controller === null;
    byId("race-replay").disabled = controller !== null || !lanes.every((lane) => lane.found);
  };
  byId("race-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    busy(new AbortController());
    await race(lanes, running.signal).catch((error) => {
      byId("race-verdict").textContent = explain(error);
      onError(error);
    });
    busy(null);
  });
  byId("race-stop").addEventListener("click", () => running?.abort());
  byId("race-replay").addEventListener("click", async () => {
    busy(new AbortController());
    const { signal } = running;
    await Promise.all(lanes.map((lane) => lane.replay(() => signal.aborted)));
    busy(null);
  });
}

let chat = true;
/** Whether the model has a chat template. */
export function raceChat(has) {
  chat = has;
}

async function race(lanes, signal) {
  const [prompt, most] = [byId("race-prompt").value, numberOf("race-tokens") ?? 160];
  const request = { max_tokens: most, temperature: 0, ...(chat ? { messages: [{ role: "user", content: prompt }] } : { prompt }) };
  byId("race-verdict").textContent = "";
  for (const lane of lanes) lane.reset(most);
  for (const lane of lanes) await lane.run(request, signal);
  byId("race-verdict").textContent = verdict(lanes);
}

function verdict([plain, dspark]) {
  const [slow, fast] = [speedOf(plain.found), speedOf(dspark.found)];
  const same = plain.tokens.text === dspark.tokens.text ? "the same text" : "different texts (rounding at a near tie)";
  if (slow === null || fast === null) return `Too short to compare; ${same}.`;
  return `DSpark ran at ${(fast / slow).toFixed(2)} times the speed of plain decoding, with ${same}.`;
}
