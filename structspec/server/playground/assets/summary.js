/** How many tokens came from where, and what the request took. */

import { ORIGINS, make } from "./detail.js";

/** Draw the bar and the legend under the tokens; `counts` is by origin. */
export function drawOrigins(bar, legend, counts) {
  const names = Object.keys(ORIGINS);
  bar.replaceChildren(
    ...names
      .filter((name) => counts[name])
      .map((name) => {
        const part = make("i", name);
        part.style.flexGrow = counts[name];
        return part;
      }),
  );
  legend.replaceChildren(
    ...names.map((name) => {
      const item = make("li");
      item.title = ORIGINS[name];
      item.append(make("span", `badge ${name}`, name), " ", make("span", "count", `${counts[name] ?? 0}`));
      return item;
    }),
  );
}

const round = (number, digits) =>
  number.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** Draw the statistics that the server told at the end; nothing where it told none. */
export function drawStats(list, stats, numTokens) {
  list.hidden = !stats;
  if (!stats) return;
  const { num_target_steps: steps, num_drafted: drafted, seconds } = stats;
  const rows = {
    "Tokens": numTokens,
    "Forward passes": steps,
    "Tokens per pass": round(numTokens / Math.max(1, steps), 2),
    "Tokens per second": round(numTokens / Math.max(seconds, 1e-9), 0),
    "First token": `${round(1000 * (stats.first_token_s ?? 0), 0)} ms`,
    "Drafts accepted": drafted ? `${stats.num_accepted} of ${drafted}` : "none drafted",
  };
  if (stats.backend) rows["Grammar compiled"] = `${round(stats.compile_ms, 1)} ms`;
  if (stats.backend) rows["Mask filling"] = `${round(stats.mask_ms, 1)} ms`;
  list.replaceChildren(
    ...Object.entries(rows).map(([name, value]) => {
      const row = make("div");
      row.append(make("dt", "", name), make("dd", "", `${value}`));
      return row;
    }),
  );
}
