// What htmx does not do: live figures, plots, the live tail, and copying. Texts from the node are set as text
// only; HTML comes from our own templates.
"use strict";

(function () {
  const root = document.documentElement.dataset.root;
  const notice = document.getElementById("notice");
  let stream = null;
  let plot = null;

  function say(words) {
    notice.textContent = words || "";
    notice.hidden = !words;
  }

  // Loads the page again, once: the answer to the first load of an ended session says why it ended, and a second
  // load would end the first one.
  let leaves = false;

  function again() {
    if (!leaves) location.reload();
    leaves = true;
  }

  addEventListener("pageshow", () => { leaves = false; });

  // -- live figures

  function show(row, figures) {
    for (const cell of row.querySelectorAll("[data-figure]")) {
      const words = figures[cell.dataset.figure];
      if (words !== undefined && cell.textContent !== words) cell.textContent = words;
    }
    const line = row.querySelector("[data-spark]");
    if (line && figures.spark !== undefined) line.setAttribute("points", figures.spark);
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  function open() {
    close();
    const part = document.querySelector("[data-figures]");
    if (!part || document.hidden) return;
    stream = new EventSource(part.dataset.figures);
    stream.addEventListener("figures", (event) => {
      say("");
      const figures = JSON.parse(event.data);
      for (const row of part.querySelectorAll("[data-row]")) {
        if (figures[row.dataset.row]) show(row, figures[row.dataset.row]);
      }
      if (figures["plot"]) draw(figures["plot"]);
    });
    stream.addEventListener("away", (event) => say(JSON.parse(event.data)));
    stream.addEventListener("ended", () => again());
    stream.onerror = () => lost(stream);
  }

  // The browser opens a stream again by itself, unless the answer was another one than 200.
  function lost(source) {
    say("The console does not answer. The page tries again until it does.");
    if (source.readyState === EventSource.CLOSED) setTimeout(check, 2000);
  }

  // After an answer other than 200 the browser gives a stream up: the session has ended, or a proxy answers.
  async function check() {
    try {
      const answer = await fetch(root + "/healthz", { cache: "no-store" });
      if (answer.ok) return again();
    } catch (error) { /* the next try follows */ }
    setTimeout(check, 2000);
  }

  function draw(data) {
    const place = document.querySelector("[data-plot]");
    if (!place || !window.uPlot || data[0].length < 2) return;
    if (plot) return plot.setData(data);
    const style = getComputedStyle(document.documentElement);
    const line = style.getPropertyValue("--line"), dim = style.getPropertyValue("--dim");
    const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    plot = new uPlot({
      width: place.clientWidth, height: 200, cursor: { drag: { x: false, y: false } },
      series: [{}, { label: "events/s", stroke: style.getPropertyValue("--accent"), width: 2, points: { show: false } }],
      legend: { show: false },
      axes: [
        { ...axis, incrs: [10, 15, 30, 60], values: (_, marks) => marks.map((at) => new Date(at * 1000).toISOString().slice(11, 19)) },
        { ...axis, size: 70 },
      ],
      scales: {
        x: { range: (_, low, high) => [high - 120, high] },
        y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] },
      },
    }, data, place);
    addEventListener("resize", () => plot.setSize({ width: place.clientWidth, height: 200 }));
  }

  // -- a page that could not reach the node

  function wait() {
    if (!document.querySelector("[data-away]")) return;
    setTimeout(async () => {
      try {
        const answer = await fetch(location.href, { cache: "no-store", redirect: "manual" });
        if (answer.status !== 503) return again();
      } catch (error) { /* the next try follows */ }
      wait();
    }, 2000);
  }

  // -- the live tail

  const ROWS_MAX = 200;
  const ANIMATED_MAX = 10;
  let tail = null;
  let paused = false;

  function follow() {
    if (tail) tail.close();
    tail = null;
    const part = document.querySelector("[data-tail]");
    if (!part || document.hidden || paused) return;
    const state = document.querySelector("[data-tail-state]");
    const body = part.querySelector("tbody");
    let shown = body.children.length;
    tail = new EventSource(part.dataset.tail);
    tail.addEventListener("open", () => {
      say("");
      if (!shown) state.textContent = "Waiting for new events";
    });
    tail.addEventListener("rows", (event) => {
      const data = JSON.parse(event.data);
      const known = body.firstElementChild;
      body.insertAdjacentHTML("afterbegin", data.html);
      // Many rows show by themselves that something arrives, and to animate them would never end.
      if (body.children.length - shown <= ANIMATED_MAX) {
        for (let row = body.firstElementChild; row !== known; row = row.nextElementSibling) row.classList.add("new");
      }
      while (body.children.length > ROWS_MAX) body.lastElementChild.remove();
      shown = body.children.length;
      state.textContent = data.skipped
        ? data.skipped.toLocaleString("en") + " events arrived too fast to be shown" : "Following";
    });
    tail.addEventListener("away", (event) => { state.textContent = JSON.parse(event.data); });
    tail.addEventListener("problem", (event) => { state.textContent = JSON.parse(event.data); tail.close(); });
    tail.addEventListener("ended", () => again());
    tail.onerror = () => lost(tail);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pause]");
    if (!button) return;
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Continue" : "Pause";
    document.querySelector("[data-tail-state]").textContent = paused ? "Paused" : "Following";
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => { if (tail) tail.close(); });
  addEventListener("pageshow", follow);

  // -- a part of a page that the server makes again

  let part = null;

  function renew() {
    if (part) part.close();
    part = null;
    const place = document.querySelector("[data-html]");
    if (!place || document.hidden) return;
    let last = "";
    part = new EventSource(place.dataset.html);
    part.addEventListener("html", (event) => {
      say("");
      const html = JSON.parse(event.data);
      if (last !== html) replace(place, last = html);
    });
    part.addEventListener("away", (event) => say(JSON.parse(event.data)));
    part.addEventListener("ended", () => again());
    part.onerror = () => lost(part);
  }

  // What a person has selected, opened and focused stays.
  function replace(place, html) {
    const ids = (selector) => new Set(Array.from(place.querySelectorAll(selector), (each) => each.id));
    const checked = ids("input:checked"), opened = ids("details[open]");
    const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
    place.innerHTML = html;
    for (const each of place.querySelectorAll("input[type=checkbox]")) each.checked = checked.has(each.id);
    for (const each of place.querySelectorAll("details")) each.open = opened.has(each.id);
    const again = focused && document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
  }

  document.addEventListener("visibilitychange", renew);
  addEventListener("pagehide", () => { if (part) part.close(); });
  addEventListener("pageshow", renew);

  // -- copying

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const place = document.getElementById(button.dataset.copy);
    const range = document.createRange();
    range.selectNodeContents(place);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try {
      // Only on pages with TLS or from this machine; elsewhere the text is selected, for Ctrl-C.
      await navigator.clipboard.writeText(place.textContent);
      say("Copied.");
    } catch (error) {
      say("The text is selected: press Ctrl-C.");
    }
  });

  // -- fields that were changed while the scripts were loading

  function isChanged(field) {
    return field.options
      ? Array.from(field.options).some((option) => option.selected !== option.defaultSelected)
      : field.value !== field.defaultValue;
  }

  // htmx was not ready for their events, so the page does not show what the fields say.
  document.addEventListener("htmx:load", () => {
    for (const field of document.querySelectorAll("[hx-trigger]:not(form), [hx-trigger] :is(input, select)")) {
      if (!isChanged(field)) continue;
      for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
    }
  }, { once: true });

  document.addEventListener("visibilitychange", open);
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.querySelector && event.target.querySelector("[data-figures]")) open();
    if (event.target.querySelector && event.target.querySelector("[data-html]")) renew();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  wait();
})();
