// The live view: what the server's metrics say, read every second while somebody looks.

import { getText } from "./api.js";
import { bars, line, nothing, parts } from "./charts.js";
import { byId, make } from "./dom.js";
import { Reading, Span } from "./metrics.js";

const EVERY = 1000, KEPT = 121, SPAN = 15; // milliseconds, readings, seconds
const ACTIVITIES = ["draft", "verify", "sample", "host"];
const percent = (share) => `${(100 * share).toFixed(0)} %`;
const millis = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
const or = (value, format, none = "–") => (value === null || Number.isNaN(value) ? none : format(value));

/** Read and draw while `looked()` says so; onState hears of errors, and null when all is well. */
export function startLive(looked, onState) {
  const readings = [];
  const once = async () => {
    if (!looked()) return;
    try {
      const reading = new Reading(await getText("metrics"), performance.now() / 1000);
      if (reading.get("dspark_step_rows_count") < (readings.at(-1)?.get("dspark_step_rows_count") ?? 0)) readings.length = 0; // a new server
      readings.push(reading);
      if (readings.length > KEPT) readings.shift();
      draw(readings);
      onState(null);
    } catch (error) {
      onState(error);
    }
  };
  const forever = async () => {
    await once();
    setTimeout(forever, EVERY);
  };
  forever();
  return once;
}

function draw(readings) {
  const now = readings.at(-1);
  const earlier = readings.find((reading) => reading.time >= now.time - SPAN);
  const recent = new Span(now, earlier === now ? null : earlier);
  const busy = recent.seconds !== null && recent.gain("dspark_step_rows_count") > 0;
  const span = busy ? recent : new Span(now);
  byId("live-span").textContent = busy
    ? `Means of the last ${Math.round(recent.seconds)} seconds.`
    : "Idle: counts are of now, means since the server started.";
  cards(now, recent, span);
  speed(readings);
  acceptance(span);
  lengths(span);
  calibration(span);
  split(span);
  cost(now, span);
}

function cards(now, recent, span) {
  const rate = recent.seconds ? recent.gain("dspark_generated_tokens_total") / recent.seconds : null;
  const prompts = span.gain("dspark_prompt_tokens_total");
  const rounds = span.gain("dspark_rounds_total");
  const accepted = span.gain("dspark_accepted_tokens_total");
  const pages = now.get("dspark_kv_pages") || 1;
  const shown = [
    ["Tokens/s", or(rate, (x) => x.toFixed(1))],
    ["Users", now.get("dspark_users")],
    ["Answers running", now.get("dspark_running_answers")],
    ["Queue", now.get("dspark_queued_requests") + now.get("dspark_waiting_answers")],
    ["Mean verify length", or(span.mean("dspark_verify_length_tokens"), (x) => x.toFixed(2))],
    ["Tokens a round", or(rounds ? 1 + accepted / rounds : null, (x) => x.toFixed(2))],
    ["Calibration error", or(errorOf(span), (x) => `${(100 * x).toFixed(1)} %`)],
    ["Prompt tokens cached", or(prompts ? span.gain("dspark_cached_prompt_tokens_total") / prompts : null, percent)],
    ["KV pages in use", percent(now.get("dspark_kv_pages", { state: "used" }) / pages)],
    ["Preemptions", now.get("dspark_preemptions_total")],
  ];
  const box = byId("cards");
  if (box.children.length !== shown.length) {
    box.replaceChildren(...shown.map(([name]) => make("div", "", [make("dt", "", name), make("dd")])));
  }
  shown.forEach(([, value], i) => { box.children[i].lastChild.textContent = value; });
}

function speed(readings) {
  const name = "dspark_generated_tokens_total";
  const points = readings.slice(1).map((later, i) => {
    const span = new Span(later, readings[i]);
    return [later.time - readings.at(-1).time, span.gain(name) / span.seconds];
  });
  if (points.length < 2) return nothing(byId("chart-speed"), "Waiting for a few readings …");
  const last = points.at(-1)[1].toFixed(1);
  line(byId("chart-speed"), `Tokens per second over the last two minutes, now ${last}`, points, { xLabel: "seconds", yLabel: "tokens/s" });
}

function acceptance(span) {
  const [reached, accepted] = ["reached", "accepted"].map((what) => span.gains(`dspark_${what}_tokens_total`, "position"));
  const entries = [...reached].filter(([, tried]) => tried > 0).map(([position, tried]) => [Number(position) + 1, (accepted.get(position) ?? 0) / tried]);
  if (!entries.length) return nothing(byId("chart-acceptance"), "Nothing has been drafted.");
  const words = entries.map(([position, share]) => `position ${position}: ${percent(share)}`).join(", ");
  bars(byId("chart-acceptance"), `Share of drafts accepted where all earlier ones were, ${words}`, entries, { format: percent, xLabel: "position in the block" });
}

function lengths(span) {
  const below = [...span.gains("dspark_verify_length_tokens_bucket", "le")];
  const total = below.at(-1)?.[1] ?? 0;
  if (!(total > 0)) return nothing(byId("chart-lengths"), "Nothing has been decoded.");
  const shares = below.map(([le, count], i) => [String(parseFloat(le)), (count - (i ? below[i - 1][1] : 0)) / total]);
  const longest = shares.findLastIndex(([, share]) => share > 0);
  const entries = shares.slice(0, Math.max(longest, 4) + 1).map(([le, share]) => [le === "Infinity" ? "more" : le, share]);
  const words = entries.map(([length, share]) => `${length}: ${percent(share)}`).join(", ");
  bars(byId("chart-lengths"), `Share of rounds by drafts verified, ${words}`, entries, { format: percent, xLabel: "drafts verified a round" });
}

function bins(span) {
  const [trials, stated, accepted] = ["trials", "stated", "accepted"].map((what) => span.gains(`dspark_confidence_${what}_total`, "bin"));
  return [...trials].filter(([, count]) => count > 0).map(([bin, count]) => ({ bin, count, stated: stated.get(bin) ?? 0, accepted: accepted.get(bin) ?? 0 }));
}

/** Expected calibration error: mean distance of what was stated from what came true, over bins of confidence. */
function errorOf(span) {
  const found = bins(span);
  const trials = found.reduce((sum, one) => sum + one.count, 0);
  return trials ? found.reduce((sum, one) => sum + Math.abs(one.stated - one.accepted), 0) / trials : null;
}

function calibration(span) {
  const entries = bins(span).map(({ bin, count, stated, accepted }) => [bin, stated / count, accepted / count]);
  if (!entries.length) return nothing(byId("chart-calibration"), "The drafter has stated no confidence.");
  const words = entries.map(([bin, stated, observed]) => `from ${bin}: stated ${percent(stated)}, observed ${percent(observed)}`).join(", ");
  bars(byId("chart-calibration"), `Confidence stated and share accepted, by bin, ${words}`, entries, { format: percent, xLabel: "confidence from; left stated, right observed" });
}

function split(span) {
  const entries = ACTIVITIES.map((activity) => [activity, span.mean("dspark_step_seconds", { activity }) ?? 0]);
  const total = entries.reduce((sum, [, value]) => sum + value, 0);
  if (!total) return nothing(byId("chart-split"), "No step has been made.");
  const words = entries.map(([name, value]) => `${name} ${millis(value)}`).join(", ");
  parts(byId("chart-split"), `A step takes ${millis(total)}: ${words}`, entries, millis);
}

function cost(now, span) {
  const curve = [...now.by("dspark_profile_step_seconds", "rows")].map(([rows, seconds]) => [Number(rows), 1000 * seconds]);
  if (curve.length < 2) return nothing(byId("chart-cost"), "No profile: the policy plans without costs.");
  const rows = span.mean("dspark_step_rows");
  const spent = ["verify", "sample", "host"].reduce((sum, activity) => sum + (span.mean("dspark_step_seconds", { activity }) ?? 0), 0);
  const mark = rows === null ? null : [rows, 1000 * spent];
  const where = mark ? `; now ${rows.toFixed(1)} rows take ${mark[1].toFixed(1)} ms` : "";
  line(byId("chart-cost"), `Milliseconds of a step by target rows${where}`, curve, { xLabel: "target rows of a step", yLabel: "ms", mark });
}
