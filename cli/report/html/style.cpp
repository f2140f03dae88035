#include "cli/report/html/style.h"

namespace vcattn::cli::html {

const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --bg: #ffffff; --fg: #1c2128; --muted: #5c6672; --panel: #f6f7f9; --rule: #dfe3e8;
  --neutral: #8a929c; --strip: #d55e0026;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #b4518f; --s4: #a67c00; --s5: #3a9bd1;
  --s6: #6a4fb3; --s7: #7d5a3c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #14171c; --fg: #e4e7eb; --muted: #9aa4b0; --panel: #1c2026; --rule: #333a43;
    --neutral: #8f98a3; --strip: #ff924d33;
    --s0: #58b0ea; --s1: #ff924d; --s2: #38cfa3; --s3: #e58fc4; --s4: #e3b94a; --s5: #93d3ff;
    --s6: #ab95f5; --s7: #c79f7d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 44px 0 4px; padding-top: 20px; border-top: 1px solid var(--rule); }
h3 { font-size: 15px; margin: 0 0 8px; }
h4 { font-size: 13px; margin: 0; color: var(--muted); font-weight: 600; }
p { margin: 0 0 12px; }
code, .number { font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 13px;
  overflow-wrap: anywhere; }
.sub { color: var(--muted); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px;
  margin: 16px 0; }
.card { background: var(--panel); border: 1px solid var(--rule);
  border-left: 4px solid currentColor;
  border-radius: 6px; padding: 10px 14px; }
.card b, .card span { display: block; color: var(--fg); }
.card .big { font-size: 24px; font-weight: 600; font-variant-numeric: tabular-nums; }
.card .sub { color: var(--muted); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; margin: 12px 0 20px; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--muted); font-weight: 600; font-size: 13px; }
th:first-child, td:first-child { text-align: left; }
td small { color: var(--muted); display: block; white-space: normal; }
table.plain td { text-align: left; white-space: normal; }
table.plain td:first-child { color: var(--muted); white-space: nowrap; width: 1%; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--rule); border-radius: 8px;
  padding: 16px; }
figure.wide { grid-column: 1 / -1; }
figcaption { color: var(--muted); font-size: 13px; margin-top: 8px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr));
  gap: 8px 24px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--fg); font-size: 12px; }
svg .tick { fill: var(--muted); font-size: 11.5px; }
svg .title { fill: var(--muted); font-size: 12px; }
svg .value { font-size: 11px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--muted); stroke-width: 1; }
svg .level { stroke: var(--muted); stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }
svg .fill { fill: currentColor; }
svg .line { stroke: currentColor; stroke-width: 1.8; fill: none; stroke-linejoin: round; }
svg .area { fill: currentColor; fill-opacity: 0.08; }
svg .strip { fill: var(--strip); }
.neutral { color: var(--neutral); }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 6px;
  padding: 0; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px;
  background: currentColor; vertical-align: -1px; }
.legend i.strip { background: var(--strip); }
.plan { border-top: 1px solid var(--rule); padding: 10px 0; font-size: 14px; }
.plan ul { margin: 0; padding-left: 20px; }
h3 span, h4 span { font-weight: 400; color: var(--muted); }
h4 span { margin-left: 8px; }
@media (max-width: 820px) { .figures { grid-template-columns: minmax(0, 1fr); } }
@media print { body { background: #fff; } figure, .card { break-inside: avoid; } }
)css";

}  // namespace vcattn::cli::html
