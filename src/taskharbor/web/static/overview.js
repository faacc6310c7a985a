// The overview as it changes: one stream of events, two plots.
"use strict";

(() => {
  const place = document.getElementById("charts");
  const state = document.getElementById("live");
  if (!place || !state) return;

  const colour = (name) => getComputedStyle(document.querySelector(`.probe.${name}`)).color;
  const time = (seconds) => {
    if (seconds == null) return "–";
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
    return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  };
  const rate = (value) => (value == null ? "–" : `${value < 10 ? Math.round(value * 10) / 10 : Math.round(value)}/s`);
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const plots = [];

  const options = (target, series, form, scale) => {
    const grid = { stroke: colour("line"), width: 1 };
    const ink = { stroke: colour("dim"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
    return {
      width: target.clientWidth - 2,
      height: 178,
      legend: { live: true },
      cursor: { y: false, points: { size: 6 } },
      scales: { y: scale },
      series: [{ label: "at", value: (_, at) => (at == null ? "now" : clock(at)) }, ...series.map((each) => ({
        width: 1.75, points: { show: false }, spanGaps: false, value: (_, value) => form(value), ...each,
      }))],
      axes: [
        { ...ink, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => clock(at).slice(0, 5)), incrs: [60, 120, 300] },
        { ...ink, size: 54, space: 30, ...(scale.distr ? { splits: powers } : {}), values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : form(tick))) },
      ],
    };
  };
  const faded = (css) => css.replace(/^rgb\(([^)]*)\)$/, "rgba($1, 0.16)");
  const upTo = (least) => (_, __, most) => [0, Math.max(least, (most || 0) * 1.12)];

  // Waits differ by thousands: each line of the grid is ten times the one below it.
  const decades = (_, least, most) => {
    if (least == null || most == null) return [0.001, 1];
    const low = Math.floor(Math.log10(Math.max(least, 0.0001)));
    return [10 ** low, 10 ** Math.max(low + 2, Math.ceil(Math.log10(most)))];
  };
  const powers = (_, __, least, most) => {
    const found = [];
    for (let power = Math.round(Math.log10(least)); 10 ** power <= most * 1.01; power += 1) found.push(10 ** power);
    return found;
  };
  const above = (values) => values.map((value) => (value == null ? null : Math.max(value, 0.0001)));
  const columns = (data) => [[data.at, data.succeeded, data.failed], [data.at, above(data.wait), above(data.run)]];
  // Without a pointer in the plot, the legend tells the newest.
  const newest = () => plots.forEach((plot) => plot.cursor.idx == null && plot.setLegend({ idx: plot.data[0].length - 1 }));

  const draw = (data) => {
    for (const plot of plots.splice(0)) plot.destroy();
    const throughput = document.getElementById("throughput");
    const times = document.getElementById("times");
    plots.push(
      new uPlot(options(throughput, [
        { label: "succeeded", stroke: colour("good"), fill: faded(colour("good")) },
        { label: "failed", stroke: colour("bad"), dash: [6, 3] },
      ], rate, { range: upTo(1) }), columns(data)[0], throughput),
      new uPlot(options(times, [
        { label: "wait", stroke: colour("wait"), points: { show: true, size: 4 } },
        { label: "run", stroke: colour("run"), dash: [6, 3], points: { show: true, size: 4 } },
      ], time, { distr: 3, range: decades }), columns(data)[1], times),
    );
    for (const [plot, words] of [[plots[0], "Attempts a second that succeeded and failed"], [plots[1], "95th percentile of wait and of run"]]) {
      plot.root.setAttribute("role", "img");
      plot.root.setAttribute("aria-label", `${words}, the last five minutes`);
    }
    newest();
  };

  let latest = JSON.parse(place.dataset.charts);
  draw(latest);
  const again = () => draw(latest);
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) {
      width = place.clientWidth;
      again();
    }
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

  const replace = (id, html) => {
    const part = document.getElementById(id);
    if (!part || part.dataset.html === html) return;
    const held = part.contains(document.activeElement) ? document.activeElement.id : null;
    if (held === "") return; // somebody is at something that could not be found again
    part.dataset.html = html;
    part.innerHTML = html; // made by the server from the same templates as the page, and escaped there
    if (held) document.getElementById(held)?.focus({ preventScroll: true });
  };

  const say = (kind, words) => {
    if (state.className !== `live end ${kind}`) state.className = `live end ${kind}`;
    if (state.textContent !== words) state.textContent = words;
  };

  let source = null;
  const listen = () => {
    source = new EventSource(state.dataset.live);
    source.addEventListener("overview", (event) => {
      const news = JSON.parse(event.data);
      for (const [id, html] of Object.entries(news.parts)) replace(id, html);
      latest = news.charts;
      columns(latest).forEach((data, place) => plots[place].setData(data));
      newest();
      say("on", "live");
    });
    source.addEventListener("still", () => say("off", "the store does not answer"));
    source.addEventListener("error", () => {
      say("off", "connecting again");
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
    });
  };
  // A page that nobody looks at asks for nothing.
  const attend = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source) listen();
  };
  document.addEventListener("visibilitychange", attend);
  attend();
})();
