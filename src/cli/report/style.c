/* report/style.c - how a report looks: on a screen of any width, in the dark, on paper. */
#include "cli/report/page.h"

const char *const report_style[] = {
    ":root{color-scheme:light dark;--page:#f5f6f8;--surface:#fff;--ink:#16191f;--quiet:#4b5362;--line:#d9dde4;--code:#eef0f4;"
    "--good:#0b6b31;--good-bg:#e5f5ea;--error:#a8201a;--error-bg:#fdeceb;--warning:#7a4f00;--warning-bg:#fff3d9;"
    "--note:#2f527a;--note-bg:#eaf1f9;--unknown:#4b5362;--unknown-bg:#eceef2;"
    "--k0:#2a78d6;--k1:#1baf7a;--k2:#eda100;--k3:#6a5acd;--k4:#008300;--k5:#d5428a;--k6:#eb6834;--k7:#7d8594}\n",
    "@media screen and (prefers-color-scheme:dark){:root{--page:#101216;--surface:#191c21;--ink:#eceff3;"
    "--quiet:#a9b1bd;--line:#333943;"
    "--code:#23272f;--good:#74d394;--good-bg:#14301f;--error:#ff9f96;--error-bg:#3c1b18;--warning:#f3c56f;--warning-bg:#33280e;"
    "--note:#a5c6ec;--note-bg:#182637;--unknown:#a9b1bd;--unknown-bg:#262b33;"
    "--k0:#4a92ea;--k1:#1fa877;--k2:#cf9010;--k3:#9a8df0;--k4:#3fa63f;--k5:#e06aa6;--k6:#e07040;--k7:#8b93a1}}\n",
    "*{box-sizing:border-box}\n",
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"Noto Sans\",\"DejaVu Sans\",sans-serif}\n",
    "main,footer{max-width:72rem;margin:0 auto;padding:0 clamp(.75rem,3vw,2rem)}\n",
    "header{padding-top:1.75rem}\n",
    "h1{margin:.1rem 0 .25rem;font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}\n",
    "h2{margin:0 0 .75rem;font-size:1.15rem;line-height:1.3}\n",
    "h3{margin:1.25rem 0 .4rem;font-size:1rem}\n",
    "p{margin:.4rem 0;overflow-wrap:anywhere}\n",
    ".eyebrow,.quiet{color:var(--quiet)}\n",
    ".eyebrow{margin:0;font-size:.875rem}\n",
    "section{margin:1.25rem 0;padding:1.1rem clamp(.9rem,2.5vw,1.4rem) 1.25rem;background:var(--surface);"
    "border:1px solid var(--line);border-radius:10px}\n",
    "code,pre,.name{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:.875em}\n",
    ".name{unicode-bidi:isolate;overflow-wrap:anywhere}\n",
    "pre{margin:.4rem 0 0;padding:.6rem .75rem;background:var(--code);border:1px solid var(--line);border-radius:6px;"
    "white-space:pre-wrap;overflow-wrap:anywhere}\n",
    "pre code{font-size:inherit;-webkit-user-select:all;user-select:all}\n",
    "pre.program{white-space:pre;overflow-x:auto}\n",
    ".big{display:flex;flex-wrap:wrap;gap:.5rem 2.5rem;margin:1rem 0}.big dd{font-size:1.75rem;font-weight:600;line-height:1.2}"
    ".big div{display:flex;flex-direction:column-reverse}\n",
    ".contents{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;margin:.75rem 0 0;padding:0;font-size:.875rem}"
    "a{color:var(--note)}\n",
    ".cause{font-size:1.0625em}\n",
    "details{margin:.6rem 0 0}summary{cursor:pointer;color:var(--note)}details .findings{margin-top:.75rem}\n",
    ".findings .fix+p{margin-top:.2rem}\n",
    ".curve{display:block;width:100%;height:6rem}.curve polyline{fill:none;stroke:var(--k0);stroke-width:2;"
    "vector-effect:non-scaling-stroke}.curve circle{fill:var(--k0)}\n",
    "dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,14rem),1fr));gap:.75rem 1.5rem;margin:0}\n",
    ".facts div{min-width:0}\n",
    ".facts .wide{grid-column:1/-1}\n",
    "dt{color:var(--quiet);font-size:.875rem}\n",
    "dd{margin:0;overflow-wrap:anywhere}\n",
    ".icon{width:1.15em;height:1.15em;flex:none;vertical-align:-.2em;fill:currentColor}\n",
    ".icon .mark{fill:none;stroke:var(--surface);stroke-width:1.8;stroke-linecap:round}\n",
    ".good{color:var(--good)}.error{color:var(--error)}.warning{color:var(--warning)}.note{color:var(--note)}"
    ".unknown{color:var(--unknown)}\n",
    ".verdict{border-width:1px 1px 1px 6px}\n",
    ".verdict h2{display:flex;gap:.5rem;align-items:center;margin:0;font-size:1.35rem}\n",
    ".verdict .icon{width:1.5rem;height:1.5rem}\n",
    ".is-good{background:var(--good-bg);border-color:var(--good)}"
    ".is-error{background:var(--error-bg);border-color:var(--error)}"
    ".is-warning{background:var(--warning-bg);border-color:var(--warning)}.is-unknown{background:var(--unknown-bg);"
    "border-color:var(--unknown)}\n",
    "ol.findings{list-style:none;margin:0;padding:0}\n",
    ".findings li{padding:.75rem 0;border-top:1px solid var(--line)}\n",
    ".findings li:first-child{border-top:0;padding-top:0}\n",
    ".findings h3{margin:0;display:flex;flex-wrap:wrap;gap:.15rem .5rem;align-items:baseline}\n",
    ".findings h3 .icon{align-self:center}\n",
    ".fix{margin:.5rem 0 0;color:var(--quiet);font-size:.875rem}\n",
    ".scroll{overflow-x:auto;margin:.5rem 0 1rem}\n",
    ".scroll:focus-visible{outline:2px solid var(--note);outline-offset:2px}\n",
    "table{border-collapse:collapse;width:100%;font-size:.875rem}\n",
    "table .name,table code{font-size:.8125rem}\n",
    "caption{text-align:left;color:var(--quiet);font-size:.875rem;padding:0 0 .35rem}\n",
    "th,td{padding:.3rem .9rem .3rem 0;text-align:left;vertical-align:top;border-top:1px solid var(--line)}\n",
    "thead td{border-top:0}\n",
    "thead th{border-top:0;color:var(--quiet);font-weight:600;font-size:.8125rem;vertical-align:bottom}\n",
    "tbody th{font-weight:400}\n",
    "th:last-child,td:last-child{padding-right:0}\n",
    ".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n",
    "td.bars{width:38%;min-width:7rem;vertical-align:middle}\n",
    "td.name:not(.word){min-width:4.5rem}\n",
    "th .long{display:inline-block;min-width:14rem}\n",
    "th .name,td .name,td.name{overflow-wrap:break-word}\n",
    ".word{overflow-wrap:normal;white-space:nowrap}\n",
    ".bar{display:block;width:100%;height:.8rem}\n",
    ".bar rect{stroke:var(--surface);stroke-width:1px;vector-effect:non-scaling-stroke}\n",
    ".hold .bar{height:1.25rem}\n",
    ".hold li{margin:.5rem 0}\n",
    ".hold,.legend{list-style:none;margin:.4rem 0;padding:0}\n",
    ".holder{display:flex;justify-content:space-between;gap:1rem}\n",
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.875rem;color:var(--quiet)}\n",
    ".key{width:.75rem;height:.75rem;vertical-align:-.06rem}\n",
    ".k0{fill:var(--k0)}.k1{fill:var(--k1)}.k2{fill:var(--k2)}.k3{fill:var(--k3)}.k4{fill:var(--k4)}.k5{fill:var(--k5)}"
    ".k6{fill:var(--k6)}.k7{fill:var(--k7)}\n",
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:0 2.5rem}\n",
    ".pair>*{min-width:0}\n",
    ".hist{display:block;width:100%;height:5.5rem}\n",
    ".axis{display:flex;justify-content:space-between;color:var(--quiet);font-size:.8125rem;font-variant-numeric:tabular-nums;"
    "border-top:1px solid var(--quiet)}\n",
    "figure{margin:0 0 1.25rem}\n",
    "figcaption{font-size:.9375rem;overflow-wrap:anywhere}\n",
    "footer{padding-top:.25rem;padding-bottom:2rem;color:var(--quiet);font-size:.875rem}\n",
    "footer p{margin:.5rem 0}\n",
    "@media screen and (max-width:40rem){body{font-size:15px}"
    "dl.facts{grid-template-columns:1fr 1fr;gap:.6rem 1rem}.big{gap:.5rem 1.5rem}.big dd{font-size:1.4rem}"
    "table,caption,tbody,tr,th,td{display:block}thead{display:none}tr{padding:.5rem 0;border-top:1px solid var(--line)}"
    "th,td{border:0;padding:.05rem 0;text-align:left}td.n{text-align:left;white-space:normal}.word{white-space:normal}"
    "tbody th{font-weight:600}td:empty,td.bars{display:none}th .long{min-width:0}"
    "[data-label]::before{content:attr(data-label) \": \";color:var(--quiet);font:.875rem system-ui,sans-serif}}\n",
    "@media print{body{background:#fff;font-size:10.5pt}main,footer{max-width:none;padding:0}"
    "section{break-inside:auto;border-radius:0;padding:.5rem 0;border-width:1px 0 0}.verdict{padding:.6rem;"
    "border-width:1px 1px 1px 6px;print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    "h2,h3,caption{break-after:avoid}.findings p,pre,figure,tr,.hold li{break-inside:avoid}"
    ".scroll,pre.program{overflow:visible}pre.program{white-space:pre-wrap}"
    ".n{white-space:normal}nav{display:none}a{color:inherit;text-decoration:none}"
    "details::details-content{content-visibility:visible;display:block;height:auto}}\n",
    NULL,
};
