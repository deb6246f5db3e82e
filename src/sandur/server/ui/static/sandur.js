// What every page has: the key `/` leads to the search field, and Escape leaves it.
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
