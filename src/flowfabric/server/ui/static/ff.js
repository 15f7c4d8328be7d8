// Starts what a page has use for. Every page reads and acts without any of it.
import {times} from "./times.js";
import {copying} from "./copy.js";
import {keys} from "./keys.js";
import {live} from "./live.js";

const page = document.body;
document.documentElement.classList.add("js");
times(document);
copying();
if (page.parentNode.dataset.keys !== "off") keys();
live();
// What only some pages have, only these load.
if (document.getElementById("filter")?.dataset.words) import("./filter.js").then((it) => it.filter());
if (document.getElementById("bulk")) import("./select.js").then((it) => it.select());
if (document.querySelector(".js-tree")) import("./json.js").then((it) => it.json());
