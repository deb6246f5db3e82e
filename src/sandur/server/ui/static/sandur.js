// What every page has: the key `/` leads to the search field, Escape leaves it, the open tab is in sight, and a button
// copies each block of code.
const search = document.getElementById("q");

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && search && !isTyping(event.target)) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape" && event.target === search) {
    search.blur();
  }
});

// On a small screen, lists of tabs are wider than the page.
for (const open of document.querySelectorAll(".tabs [aria-current], .menu [aria-current]")) {
  open.scrollIntoView({ block: "nearest", inline: "center" });
}

// Browsers give pages the clipboard over https and on the machine itself only.
if (navigator.clipboard) {
  for (const block of document.querySelectorAll("pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent.trim());
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not copied";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    const frame = document.createElement("div");
    frame.className = "code-block";
    block.replaceWith(frame);
    frame.append(block, button);
  }
}
