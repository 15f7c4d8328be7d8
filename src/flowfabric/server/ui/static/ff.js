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

