// A walk through the page of test_browser.py, which reads what was put into `seen`.
seen.start = said();
seen.heading = $("h1").textContent;
seen.texts = [...document.querySelectorAll(".text")].map((t) => t.textContent);
seen.labels = [labels(SOURCE), labels(TARGET)];

pointer(chip(TARGET, 0), "pointerover");
seen.target = said();
seen.tints = tints(SOURCE);
seen.figures = figures(SOURCE);
seen.pressed = chip(TARGET, 0).getAttribute("aria-pressed");
pointer(chip(SOURCE, 2), "pointerover");
seen.source = said();
seen.sourceFigures = figures(TARGET);
seen.untinted = tints(SOURCE);
pointer(group(SOURCE), "pointerleave");
seen.left = said();

chip(TARGET, 2).click();
seen.pinned = [said(), location.hash];
pointer(chip(TARGET, 0), "pointerover");
pointer(group(TARGET), "pointerleave");
seen.again = said();
chip(TARGET, 2).click();
seen.unpinned = [said(), location.hash];

pointer($(".cells"), "pointermove", cell(0, 2));
seen.cell = [said(), $(".tip").textContent, $(".tip").hidden];
pointer($(".cells"), "pointermove", cell(2, 3));
seen.least = said();
pointer($(".cells"), "pointerleave");
seen.tipGone = $(".tip").hidden;
seen.pixels = [pixel(1, 1), pixel(1, 0)];
$("#small").click();
seen.brought = pixel(0, 0);
$("#small").click();
seen.plain = pixel(0, 0);

$(".map").focus();
seen.focused = [said(), location.hash];
key($(".map"), "ArrowDown"); key($(".map"), "ArrowRight");
seen.arrows = [said(), location.hash];
key($(".map"), "End"); key($(".map"), "PageDown"); key($(".map"), "ArrowDown");
seen.end = location.hash;
key($(".map"), "Home"); key($(".map"), "PageUp"); key($(".map"), "ArrowLeft");
seen.home = location.hash;
key($(".map"), "Escape");
seen.escaped = [said(), location.hash];

chip(TARGET, 0).focus();
key(chip(TARGET, 0), "ArrowRight");
seen.roved = [said(), location.hash, document.activeElement === chip(TARGET, 1)];
seen.stops = each(TARGET, (chip) => chip.tabIndex);
key(chip(TARGET, 1), "End");
seen.roveEnd = document.activeElement === chip(TARGET, 2);

$("details").open = true; await pause();
seen.table = [...document.querySelectorAll("tbody tr")].map((row) => [...row.children].map((c) => c.textContent));

$("[aria-label='next alignment']").click();
seen.next = [$("h1").textContent, location.hash, $("#chooser").value];
seen.direction = getComputedStyle(group(SOURCE)).direction;
chip(SOURCE, 0).focus();
key(chip(SOURCE, 0), "ArrowLeft");
seen.rtl = document.activeElement === chip(SOURCE, 1);
chip(TARGET, 1).click();
seen.nothing = said();
seen.images = document.images.length;
$("#chooser").value = 2; $("#chooser").dispatchEvent(new Event("change"));
seen.empty = [said(), $("#heat").hidden, $("#table").hidden];
await go("#4"); seen.single = said();
await go("#4.1.1"); seen.singleCell = said();
await go("#1.0.3"); seen.linked = said();
await go("#9"); seen.wrong = said();
await go("#1.7"); seen.wrongPiece = said();
await go("#words"); seen.wrongWords = said();
