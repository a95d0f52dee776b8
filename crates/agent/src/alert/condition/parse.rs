//! The parser of conditions.

use flowgauge_core::unknown::{Unknown, nearest};

use super::fields::{AccountField, Task};
use super::{Bound, Comparison, Node, Operator, Subject};

/// Maximum nesting of parentheses and `not`, so that no text can exhaust the stack.
const DEEPEST: usize = 32;

const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    (">", Operator::Over),
    ("<", Operator::Under),
];

const BOUNDS: [(&str, Bound); 4] = [
    ("low", Bound::Low),
    ("high", Bound::High),
    ("value", Bound::Value),
    ("estimate", Bound::Value),
];

pub(super) fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { words: words(text), at: 0 };
    if parser.words.is_empty() {
        return Err("the condition is empty; write one such as 'account.dropped > 0'".to_owned());
    }
    let node = parser.any(0)?;
    match parser.next() {
        None => Ok(node),
        Some(")") => Err("')' has no '(' before it".to_owned()),
        Some(word) => Err(format!("expected 'and' or 'or' before '{word}'")),
    }
}

/// Splits a condition into words, operators and parentheses.
fn words(mut text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else { return words };
        let symbol = |c: char| matches!(c, '>' | '<' | '=' | '!');
        let end = match first {
            '(' | ')' => 1,
            c if symbol(c) => text.find(|c| !symbol(c)).unwrap_or(text.len()),
            _ => {
                let ends = |c: char| c.is_whitespace() || symbol(c) || matches!(c, '(' | ')');
                text.find(ends).unwrap_or(text.len())
            }
        };
        let (word, rest) = text.split_at(end);
        words.push(word);
        text = rest;
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn takes(&mut self, word: &str) -> bool {
        let taken = self.words.get(self.at) == Some(&word);
        self.at += usize::from(taken);
        taken
    }

    fn any(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes("or") {
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    fn all(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.one(depth)?];
        while self.takes("and") {
            nodes.push(self.one(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::All(nodes) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, String> {
        if depth == DEEPEST {
            return Err(format!("'(' and 'not' are nested more than {DEEPEST} deep"));
        }
        if self.takes("not") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let node = self.any(depth + 1)?;
            return if self.takes(")") { Ok(node) } else { Err("'(' has no ')'".to_owned()) };
        }
        Ok(Node::Compare(self.comparison()?))
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        let Some(field) = self.next() else {
            return Err("the condition ends where a field was expected".to_owned());
        };
        let subject = subject(field)?;
        let operators = || OPERATORS.map(|(name, _)| name).join(" ");
        let Some(sign) = self.next() else {
            return Err(format!(
                "'{field}' is compared with nothing; add an operator ({}) and a \
                                number",
                operators()
            ));
        };
        let Some((_, operator)) = OPERATORS.into_iter().find(|(name, _)| *name == sign) else {
            return Err(format!(
                "unknown operator '{sign}' after '{field}'; available: {}",
                operators()
            ));
        };
        let Some(number) = self.next() else {
            return Err(format!("'{field} {sign}' needs a number"));
        };
        let parsed = number.replace('_', "").parse::<f64>().ok().filter(|it| it.is_finite());
        let Some(parsed) = parsed else {
            return Err(format!("'{number}' after '{field} {sign}' is not a number"));
        };
        Ok(Comparison { subject, operator, number: parsed })
    }
}

fn subject(text: &str) -> Result<Subject, String> {
    let parts: Vec<&str> = text.split('.').collect();
    match parts[..] {
        ["account", field] => AccountField::find(field).map(Subject::Account),
        [measurement, task, field] if !measurement.is_empty() => {
            task_field(measurement, task, field, None)
        }
        [measurement, task, field, bound] if !measurement.is_empty() => {
            let found = BOUNDS.into_iter().find(|(name, _)| *name == bound);
            let unknown = || Unknown::new("bound", bound, BOUNDS.map(|(name, _)| name)).to_string();
            let (_, bound) = found.ok_or_else(unknown)?;
            task_field(measurement, task, field, Some(bound))
        }
        _ => Err(format!(
            "'{text}' is not a field; write MEASUREMENT.TASK.FIELD, such as victims.victims.distinct, \
             or account.FIELD{}",
            match nearest(parts[0], ["account"]) {
                Some("account") if parts.len() == 2 => "; did you mean 'account'?",
                _ => "",
            }
        )),
    }
}

fn task_field(
    measurement: &str,
    task: &str,
    field: &str,
    bound: Option<Bound>,
) -> Result<Subject, String> {
    let task = Task::find(task)?;
    let field = task.field(field)?;
    Ok(Subject::Task { measurement: measurement.to_owned(), task, field, bound })
}
