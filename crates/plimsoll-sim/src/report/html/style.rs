//! The style sheet of the page.

/// Colours follow the reader's preference for light or dark; zones have fixed colours in both.
pub(super) const CSS: &str = "
:root{color-scheme:light dark;
--bg:#fbfbfa;--card:#fff;--ink:#1c1f23;--dim:#667079;--line:#e3e5e8;--grid:#eceef0;
--good:#177245;--good-bg:#e4f4ea;--warn:#8a5a00;--warn-bg:#fdf1d8;--bad:#b3261e;--bad-bg:#fde8e6;
--z0:#2f6fde;--z1:#e0762b;--z2:#2a9d62;--z3:#9157d6;--z4:#d6457c;--z5:#1499a8;--hot:#d1372c;
--band:#2f6fde26;--fill:#2f6fde2e;--fail:#d1372c33;--limit:#d1372c}
@media (prefers-color-scheme:dark){:root{
--bg:#14171a;--card:#1b1f23;--ink:#e7e9eb;--dim:#98a1aa;--line:#2c3238;--grid:#262b31;
--good:#6fd39b;--good-bg:#173126;--warn:#e6bd63;--warn-bg:#362b12;--bad:#ff8a80;--bad-bg:#3d1c1a;
--z0:#74a5ff;--z1:#ffa463;--z2:#5fd199;--z3:#bd92f5;--z4:#ff85b1;--z5:#52cbd8;--hot:#ff7a6e;
--band:#74a5ff2e;--fill:#74a5ff33;--fail:#ff7a6e38;--limit:#ff7a6e}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:27px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:20px;margin:0 0 6px;letter-spacing:-.01em}
section{margin-top:40px}
section>p{max-width:78ch;margin:0 0 12px;color:var(--ink)}
.facts,.note,footer{color:var(--dim);font-size:13.5px}
.facts{margin:0 0 14px}
.lead{max-width:78ch;margin:0 0 10px;font-size:16px}
.note{margin:2px 0;max-width:100ch}
.events{list-style:none;display:flex;flex-wrap:wrap;gap:6px 18px;margin:10px 0;padding:0;
font-size:13.5px}
.events b{display:inline-block;min-width:18px;text-align:center;border-radius:9px;font-size:11.5px;
background:var(--ink);color:var(--bg);padding:0 5px;margin-right:3px}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;background:var(--card)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.summary{width:100%;font-size:13.5px}
.summary th{font-weight:600;color:var(--dim);text-align:right;padding:9px 12px 7px;
border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:bottom}
.summary td{text-align:right;padding:7px 12px;border-bottom:1px solid var(--line);
white-space:nowrap}
.summary tr:last-child td{border-bottom:0}
.summary th:first-child,.summary td:first-child{text-align:left}
.summary td:first-child{font-weight:600}
.summary small{color:var(--dim);font-size:12px}
.policies{display:grid;grid-template-columns:repeat(auto-fit,minmax(340px,1fr));gap:2px 24px;
margin:14px 0 0;font-size:13px;color:var(--dim)}
.policies div{display:flex;gap:8px}
.policies dt{color:var(--ink);font-weight:600;white-space:nowrap}
.policies dd{margin:0}
.tag{display:inline-block;padding:0 7px;border-radius:6px}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.tag.good{background:var(--good-bg)}.tag.warn{background:var(--warn-bg)}
.tag.bad{background:var(--bad-bg)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 12px;font-size:13.5px;
color:var(--dim)}
.legend i{display:inline-block;width:24px;height:0;border-top:3px solid;border-radius:2px;
margin-right:6px;vertical-align:middle}
.legend i.dash{border-top-style:dashed;border-top-width:2px}
.legend i.area{height:11px;border:0;border-radius:3px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(340px,1fr));gap:14px}
.grid.small{grid-template-columns:repeat(auto-fit,minmax(270px,1fr))}
figure{margin:0;padding:12px 14px 10px;background:var(--card);border:1px solid var(--line);
border-radius:10px;display:flex;flex-direction:column}
figure h3{font-size:14.5px;margin:0}
figcaption{font-size:13px;color:var(--dim);margin:0 0 8px}
figcaption b{color:var(--ink);font-weight:600}
svg{display:block;width:100%;height:auto;overflow:visible;margin-top:auto}
svg text{font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif;
fill:var(--dim)}
.gl{stroke:var(--grid);stroke-width:1}
.ax{stroke:var(--line);stroke-width:1}
.ln{fill:none;stroke-width:1.5;stroke-linejoin:round}
.thin{stroke-width:1}
.z0{stroke:var(--z0)}.z1{stroke:var(--z1)}.z2{stroke:var(--z2)}.z3{stroke:var(--z3)}
.z4{stroke:var(--z4)}.z5{stroke:var(--z5)}.hot{stroke:var(--hot)}.cold{stroke:var(--z0)}
.mean{stroke:var(--dim);stroke-dasharray:4 3}
.limit{stroke:var(--limit);stroke-dasharray:2 3;stroke-width:1}
.ink{stroke:var(--ink)}
.band{fill:var(--band);stroke:none}
.fill{fill:var(--fill);stroke:none}
.fail{fill:var(--fail);stroke:none}
.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:1 3}
.dot{fill:var(--ink)}
svg text.num{fill:var(--bg);font-size:9.5px;font-weight:600}
.early{fill:var(--ink);opacity:.035}
details{margin:6px 0}
summary{cursor:pointer}
.checks{font-size:13.5px;margin:6px 0 0}
.checks td{padding:3px 16px 3px 0;vertical-align:top}
code{font-size:.93em}
footer{margin-top:44px;border-top:1px solid var(--line);padding-top:12px}
footer p{max-width:100ch;margin:0 0 8px}
@media print{body{background:#fff}figure,.scroll{break-inside:avoid}}
";
