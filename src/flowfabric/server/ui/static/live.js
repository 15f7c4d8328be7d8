// Live parts of a page.
export function live() {}
