//! What `flowgauge top` shows, and its keys.

use std::collections::BTreeMap;

use flowgauge_engine::sink::{units, visible};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row as TableRow, Table, TableState};
use serde_json::Value;

use super::rows::{Number, Prefix, Row, lists, rows};

/// The keys and what they do.
const HELP: [(&str, &str); 9] = [
    ("← →", "another measurement"),
    ("t", "another list: top, heavy hitters, victims, …"),
    ("s", "sort by packets, bytes or distinct peers"),
    ("↑ ↓", "choose a row"),
    ("Enter", "show only the network around the row's first address"),
    ("/", "filter by text, or by a prefix such as 10.1.0.0/16"),
    ("Esc", "leave out the filter"),
    ("p", "pause, and go on"),
    ("q", "quit"),
];

/// The titles of the columns of numbers.
const NUMBERS: [&str; 3] = ["packets", "bytes", "distinct"];

/// Width in cells of the bar for a share of 100 %.
const BAR: f64 = 20.0;

/// The state of the screen.
pub(super) struct View {
    /// Where reports come from.
    from: String,
    /// The last report of each measurement.
    reports: BTreeMap<String, Value>,
    /// The latest reports that arrived while paused.
    waiting: Option<BTreeMap<String, Value>>,
    measurement: usize,
    list: usize,
    sort: usize,
    filter: String,
    is_typing: bool,
    is_helping: bool,
    has_ended: bool,
    table: TableState,
}

impl View {
    pub(super) fn new(from: String) -> Self {
        Self {
            from,
            reports: BTreeMap::new(),
            waiting: None,
            measurement: 0,
            list: 0,
            sort: 0,
            filter: String::new(),
            is_typing: false,
            is_helping: false,
            has_ended: false,
            table: TableState::default(),
        }
    }

    /// Adds a report.
    pub(super) fn add(&mut self, report: Value) {
        let Some(name) = report["measurement"].as_str().map(str::to_owned) else { return };
        self.waiting.as_mut().unwrap_or(&mut self.reports).insert(name, report);
    }

    /// Notes that no more reports will come.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    fn report(&self) -> Option<(&str, &Value)> {
        let count = self.reports.len().max(1);
        let shown = self.reports.iter().nth(self.measurement % count);
        shown.map(|(name, report)| (&**name, report))
    }

    /// The displayed list.
    fn task(&self) -> Option<&'static str> {
        let lists = lists(self.report()?.1);
        lists.get(self.list % lists.len().max(1)).copied()
    }

    /// The sort column; if the list lacks it, the next one it has.
    fn sorted_by(&self) -> usize {
        let (Some((_, report)), Some(task)) = (self.report(), self.task()) else { return 0 };
        let rows = rows(report, task);
        let has = |at: &usize| rows.iter().any(|row| row.numbers[*at].is_some());
        let by = (self.sort..self.sort + NUMBERS.len()).map(|at| at % NUMBERS.len()).find(has);
        by.unwrap_or(self.sort % NUMBERS.len())
    }

    /// The rows that pass the filter, sorted.
    fn rows(&self) -> Vec<Row> {
        let (Some((_, report)), Some(task)) = (self.report(), self.task()) else {
            return Vec::new();
        };
        let mut rows = rows(report, task);
        match Prefix::parse(&self.filter) {
            Some(prefix) => {
                rows.retain(|row| row.addresses.iter().any(|address| prefix.has(*address)));
            }
            None => rows.retain(|row| row.name.contains(&self.filter)),
        }
        let by = self.sorted_by();
        let value = |row: &Row| row.numbers[by].map_or(f64::NEG_INFINITY, |number| number.value);
        rows.sort_by(|one, other| value(other).total_cmp(&value(one)));
        rows
    }

    /// Handles a key; `false` to quit.
    pub(super) fn key(&mut self, key: KeyCode) -> bool {
        match (key, self.is_typing) {
            (KeyCode::Enter, true) => self.is_typing = false,
            (KeyCode::Esc, _) => {
                (self.is_typing, self.is_helping) = (false, false);
                self.filter.clear();
            }
            (KeyCode::Backspace, true) => drop(self.filter.pop()),
            (KeyCode::Char(c), true) => self.filter.push(c),
            (KeyCode::Char('q'), false) => return false,
            (KeyCode::Char('?' | 'h'), false) => self.is_helping = !self.is_helping,
            (KeyCode::Char('/'), false) => self.is_typing = true,
            (KeyCode::Char('s'), false) => self.sort += 1,
            (KeyCode::Char('t'), false) => self.list += 1,
            (KeyCode::Char('p'), false) => match self.waiting.take() {
                Some(waiting) => self.reports = waiting,
                None => self.waiting = Some(self.reports.clone()),
            },
            (KeyCode::Right | KeyCode::Tab, false) => self.turn(1),
            (KeyCode::Left | KeyCode::BackTab, false) => self.turn(self.reports.len().max(1) - 1),
            (KeyCode::Down, false) => self.table.select_next(),
            (KeyCode::Up, false) => self.table.select_previous(),
            (KeyCode::Enter, false) => {
                let row = self.table.selected().and_then(|at| self.rows().into_iter().nth(at));
                if let Some(address) = row.and_then(|row| row.addresses.first().copied()) {
                    self.filter = Prefix::around(address);
                }
            }
            _ => {}
        }
        true
    }

    fn turn(&mut self, by: usize) {
        self.measurement = (self.measurement + by) % self.reports.len().max(1);
        self.list = 0;
        self.table.select(None);
    }

    /// Draws the view.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = [Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(areas).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let rows = self.rows();
        let most = rows.len().saturating_sub(1);
        if self.table.selected().is_some_and(|at| at > most) {
            self.table.select(Some(most));
        }
        let table = table(&rows, body.width, self.sorted_by());
        frame.render_stateful_widget(table, body, &mut self.table);
        frame.render_widget(Paragraph::new(self.foot()), foot);
        if self.is_helping {
            let area = frame
                .area()
                .centered(Constraint::Length(64), Constraint::Length(HELP.len() as u16 + 2));
            let lines = HELP.map(|(keys, what)| Line::from(format!(" {keys:<6} {what}")));
            let block = Block::bordered().title(" Keys ");
            frame.render_widget(Clear, area);
            frame.render_widget(Paragraph::new(lines.to_vec()).block(block), area);
        }
    }

    fn head(&self) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let Some((name, report)) = self.report() else {
            let end = if self.has_ended { "; the agent has ended" } else { "" };
            let wait = format!("{}: no epoch has ended yet{end}", visible(&self.from));
            return vec![Line::from(wait)];
        };
        let text = |value: &Value| visible(value.as_str().unwrap_or_default()).into_owned();
        let mut title = vec![Span::styled(format!("{} ", visible(&self.from)), bold)];
        for measurement in self.reports.keys() {
            let style =
                if measurement == name { bold.add_modifier(Modifier::REVERSED) } else { bold };
            title.push(Span::styled(format!(" {} ", visible(measurement)), style));
        }
        let start = text(&report["start"]);
        let state = match (self.has_ended, &self.waiting) {
            (true, _) => "  the agent has ended",
            (false, Some(_)) => "  paused",
            (false, None) => "",
        };
        let number = report["epoch"].as_u64().unwrap_or_default();
        let time = start.get(..19).unwrap_or_default().replace('T', " ");
        title.push(Span::raw(format!(" epoch {number}, {time} UTC{state}")));
        vec![Line::from(title), Line::from(traffic(report)), Line::from(self.answers(report))]
    }

    /// The answers of tasks without lists, and the name of the displayed list.
    fn answers(&self, report: &Value) -> String {
        let mut words = Vec::new();
        if let Some(task) = self.task() {
            words.push(format!("{task} by {}", NUMBERS[self.sorted_by()]));
        }
        let tasks = &report["tasks"];
        if let Some(flows) = tasks["cardinality"]["flows"]["value"].as_f64() {
            words.push(format!("{} flows", units::count(flows.round())));
        }
        if let Some(share) = tasks["entropy"]["normalized"].as_f64() {
            words.push(format!("entropy {:.1} %", 100.0 * share));
        }
        words.join(" · ")
    }

    fn foot(&self) -> String {
        match (self.is_typing, self.filter.is_empty()) {
            (true, _) => format!("/{}█", visible(&self.filter)),
            (false, false) => format!("only {} (Esc: all)  ? help  q quit", visible(&self.filter)),
            (false, true) => "? help  q quit".to_owned(),
        }
    }
}

/// Rates and losses.
fn traffic(report: &Value) -> String {
    let account = &report["account"];
    let number = |name: &str| account[name].as_u64().unwrap_or_default();
    let ns = |name: &str| {
        let text = report[name].as_str().unwrap_or_default();
        flowgauge_engine::sink::parse_rfc3339(text).unwrap_or_default()
    };
    let seconds = (ns("end") - ns("start")) as f64 / 1e9;
    let seconds = seconds * report["coverage"].as_f64().unwrap_or(1.0);
    let rate = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
    let lost = number("lost") + number("dropped") + number("untracked");
    let lost = if lost > 0 {
        format!(" · {} LOST OR UNTRACKED", units::count(lost as f64))
    } else {
        String::new()
    };
    format!(
        "{} packets/s · {:.2} Mbit/s{lost}",
        units::count(rate(number("keyed")).round()),
        8.0 * rate(number("keyed_bytes")) / 1e6
    )
}

/// The rows as a table. A narrow one shows only the sort column.
fn table(rows: &[Row], width: u16, sort: usize) -> Table<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let is_narrow = width < 80;
    let is_shown = |at: &usize| {
        let has = rows.iter().any(|row| row.numbers[*at].is_some());
        has && (!is_narrow || *at == sort)
    };
    let shown: Vec<usize> = (0..NUMBERS.len()).filter(is_shown).collect();
    let has_bar = width >= 100;
    let mut head = vec![String::new(), "flow".to_owned()];
    head.extend(shown.iter().map(|at| NUMBERS[*at].to_owned()));
    head.push("share".to_owned());
    let cells = |(row, rank): (&Row, u32)| {
        let share = row.share.map(|share| format!("{:.2} %", 100.0 * share)).unwrap_or_default();
        let mut cells = vec![rank.to_string(), visible(&row.name).into_owned()];
        cells.extend(shown.iter().map(|at| row.numbers[*at].map(number).unwrap_or_default()));
        cells.push(share);
        cells
    };
    let lines: Vec<Vec<String>> = rows.iter().zip(1..).map(cells).collect();
    let mut widths: Vec<_> = (0..head.len())
        .map(|at| {
            let cells = lines.iter().chain([&head]).map(|cells| cells[at].chars().count());
            Constraint::Length(cells.max().unwrap_or_default() as u16)
        })
        .collect();
    widths[1] = Constraint::Fill(1);
    widths.extend(has_bar.then_some(Constraint::Length(BAR as u16)));
    let lines = lines.into_iter().zip(rows).map(|(mut cells, row)| {
        let bar = "█".repeat((row.share.unwrap_or_default() * BAR).round() as usize);
        cells.extend(has_bar.then_some(bar));
        TableRow::new(cells)
    });
    Table::new(lines, widths)
        .column_spacing(2)
        .header(TableRow::new(head).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

/// A number, with bounds if it is an estimate.
fn number(number: Number) -> String {
    let whole = |value: f64| units::count(value.max(0.0).round());
    if number.low < number.high {
        format!("{}–{}", whole(number.low), whole(number.high))
    } else {
        whole(number.value)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    /// The lines on a terminal of this width.
    fn screen(view: &mut View, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 12)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..12).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn item(source: &str, packets: [u64; 3], bytes: u64) -> Value {
        let [low, value, high] = packets;
        json!({
            "key": { "source": source },
            "packets": { "low": low, "value": value, "high": high },
            "bytes": { "low": bytes, "value": bytes, "high": bytes },
            "share": value as f64 / 1000.0,
        })
    }

    fn view() -> View {
        let mut view = View::new("edge".to_owned());
        let report = |name: &str, items: Value| {
            json!({
                "measurement": name, "epoch": 7, "coverage": 1.0,
                "start": "2026-11-25T06:42:23.000000000Z", "end": "2026-11-25T06:42:25.000000000Z",
                "account": { "keyed": 1000, "keyed_bytes": 64000, "lost": 3 },
                "tasks": {
                    "top": { "items": items.clone() }, "heavy-hitters": { "items": [] },
                    "cardinality": { "flows": { "value": 1234 } },
                    "entropy": { "normalized": 0.5 },
                },
            })
        };
        let items =
            json!([item("10.1.0.1", [500, 500, 500], 1), item("10.2.0.1", [100, 200, 300], 9)]);
        view.add(report("hosts", items));
        view.add(report("others", json!([])));
        view
    }

    #[test]
    fn a_report_is_shown_with_its_bounds_and_losses() {
        let lines = screen(&mut view(), 100);
        assert_eq!(lines[0], "edge  hosts  others  epoch 7, 2026-11-25 06:42:23 UTC");
        assert_eq!(lines[1], "500 packets/s · 0.26 Mbit/s · 3 LOST OR UNTRACKED");
        assert_eq!(lines[2], "top by packets · 1,234 flows · entropy 50.0 %");
        assert!(lines[4].contains("10.1.0.1") && lines[4].contains("500"), "{}", lines[4]);
        assert!(lines[4].ends_with("50.00 %  ██████████"), "{}", lines[4]);
        assert!(lines[5].contains("10.2.0.1") && lines[5].contains("100–300"), "{}", lines[5]);
        assert_eq!(lines[11], "? help  q quit");
        assert!(screen(&mut view(), 40)[4].contains("10.1"));
    }

    #[test]
    fn keys_sort_filter_drill_down_pause_and_help() {
        let mut view = view();
        let first =
            |view: &mut View| screen(view, 100)[4].split_whitespace().nth(1).map(str::to_owned);
        let press = |view: &mut View, keys: &[KeyCode]| keys.iter().all(|key| view.key(*key));
        press(&mut view, &[KeyCode::Char('s')]);
        assert_eq!(first(&mut view).unwrap(), "10.2.0.1");
        press(&mut view, &[KeyCode::Char('s'), KeyCode::Char('s')]);
        press(
            &mut view,
            &[KeyCode::Char('/'), KeyCode::Char('.'), KeyCode::Char('2'), KeyCode::Enter],
        );
        assert_eq!(first(&mut view).unwrap(), "10.2.0.1");
        assert!(screen(&mut view, 100)[11].starts_with("only .2"));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(first(&mut view).unwrap(), "10.1.0.1");
        press(&mut view, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
        assert!(screen(&mut view, 100)[11].starts_with("only 10.2.0.0/24"));
        assert_eq!(first(&mut view).unwrap(), "10.2.0.1");
        press(&mut view, &[KeyCode::Esc, KeyCode::Char('t')]);
        assert_eq!(screen(&mut view, 100)[2].split(' ').next(), Some("heavy-hitters"));
        press(&mut view, &[KeyCode::Right]);
        assert_eq!(first(&mut view), None);
        press(&mut view, &[KeyCode::Left, KeyCode::Char('p')]);
        view.add(json!({ "measurement": "hosts", "epoch": 8 }));
        assert!(screen(&mut view, 100)[0].ends_with("paused"));
        assert!(screen(&mut view, 100)[0].contains("epoch 7"));
        press(&mut view, &[KeyCode::Char('p')]);
        assert!(screen(&mut view, 100)[0].contains("epoch 8"));
        press(&mut view, &[KeyCode::Char('?')]);
        let help = screen(&mut view, 100).join("\n");
        assert!(help.contains("pause, and go on"), "{help}");
        assert!(!press(&mut view, &[KeyCode::Char('q')]));
    }

    #[test]
    fn a_list_without_the_chosen_number_is_sorted_by_one_that_it_has() {
        let mut view = View::new("edge".to_owned());
        let host = |address: &str, distinct: u64| json!({ "key": { "destination": address }, "distinct": { "value": distinct } });
        view.add(json!({
            "measurement": "hosts",
            "tasks": { "victims": { "items": [host("10.0.0.1", 5), host("10.0.0.2", 7)] } },
        }));
        let lines = screen(&mut view, 100);
        assert_eq!(lines[2], "victims by distinct");
        assert!(lines[4].contains("10.0.0.2"), "{}", lines[4]);
    }

    #[test]
    fn nothing_from_outside_reaches_the_terminal_as_it_is() {
        let mut view = View::new("edge\u{1b}[2J".to_owned());
        view.add(json!({
            "measurement": "a\u{1b}]0;x\u{7}", "epoch": 0, "start": "\u{1b}[1m",
            "tasks": { "top": { "items": [{ "key": { "source": "\u{1b}[31m" } }] } },
        }));
        let all = screen(&mut view, 100).concat();
        assert!(!all.contains('\u{1b}') && !all.contains('\u{7}'), "{all:?}");
    }
}
