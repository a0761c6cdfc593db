"use strict";
(() => {
  const root = document.documentElement;
  root.classList.replace("no-js", "js");

  // Light or dark: as the system says, until the switch says otherwise.
  const theme = document.getElementById("theme");
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches);
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  systemIsDark.addEventListener("change", nameTheme);
  nameTheme();

  // Charts: lines on and off, and figures read out by pointer or arrow keys.
  for (const chart of document.querySelectorAll(".chart")) {
    const plot = chart.querySelector(".plot");
    const picture = plot.querySelector("svg");
    const cursor = plot.querySelector(".cursor");
    const readout = chart.querySelector(".readout");
    const series = [...plot.querySelectorAll("g.series")].map((group) => ({
      group,
      label: group.dataset.label,
      values: new Map(group.dataset.values.split(" ").filter(Boolean).map((pair) => pair.split(":").map(Number))),
    }));
    const angles = [...new Set(series.flatMap((one) => [...one.values.keys()]))].sort((a, b) => a - b);
    const left = Number(picture.dataset.left);
    const right = Number(picture.dataset.right);
    let at = -1;

    const read = (index) => {
      if (!angles.length) return;
      at = Math.min(angles.length - 1, Math.max(0, index));
      const x = left + ((right - left) * angles[at]) / 360;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      plot.classList.add("reading");
      const shown = series.filter((one) => !one.group.classList.contains("off") && one.values.has(angles[at]));
      const figures = shown.map((one) => `${one.label} ${one.values.get(angles[at]).toFixed(2)}`);
      readout.textContent = `${angles[at]}°: ${figures.join(", ")}`;
    };
    const stop = () => {
      plot.classList.remove("reading");
      readout.textContent = "";
    };
    plot.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
      const angle = (360 * (x - left)) / (right - left);
      let nearest = 0;
      angles.forEach((one, index) => {
        if (Math.abs(one - angle) < Math.abs(angles[nearest] - angle)) nearest = index;
      });
      read(nearest);
    });
    plot.addEventListener("pointerleave", stop);
    plot.addEventListener("blur", stop);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) {
        event.preventDefault();
        read(at < 0 ? 0 : at + step);
      } else if (event.key === "Escape") {
        stop();
      }
    });
    for (const box of chart.querySelectorAll(".legend input")) {
      box.addEventListener("change", () => {
        series[Number(box.dataset.series)].group.classList.toggle("off", !box.checked);
      });
      box.dispatchEvent(new Event("change")); // browsers remember boxes over a reload
    }
  }

  // Turning images: all of a section at once.
  for (const section of document.querySelectorAll(".turning")) {
    const angles = section.dataset.angles.split(" ");
    const slider = section.querySelector("input[type=range]");
    if (!slider) continue;
    const play = section.querySelector(".play");
    const output = section.querySelector("output");
    const films = [...section.querySelectorAll(".film")];
    const rows = [...section.querySelectorAll(".row")].map((row) => ({
      cells: [...row.querySelectorAll(".cells i")],
      said: row.querySelector(".said"),
    }));
    const show = (frame) => {
      slider.value = frame;
      output.textContent = `${angles[frame]}°`;
      for (const film of films) film.style.backgroundPositionX = `calc(var(--side) * -${frame})`;
      for (const row of rows) {
        row.cells.forEach((cell, index) => cell.classList.toggle("now", index === frame));
        row.said.textContent = row.cells[frame].dataset.text;
      }
    };
    let timer = null;
    const turn = (on) => {
      clearInterval(timer);
      timer = on ? setInterval(() => show((Number(slider.value) + 1) % angles.length), 300) : null;
      play.textContent = on ? "Pause" : "Play";
    };
    play.addEventListener("click", () => turn(timer === null));
    slider.addEventListener("input", () => {
      turn(false);
      show(Number(slider.value));
    });
    addEventListener("beforeprint", () => { turn(false); show(0); });
    show(0);
    turn(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  }
})();
