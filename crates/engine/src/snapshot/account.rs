//! The account of a snapshot: its counts by name, so that a later version can have more of them.

use flowgauge_core::packet::{Fault, Layer, NoKey};
use flowgauge_core::summary::codec::{DecodeError, Reader, Writer};

use super::text;
use crate::account::Account;
use crate::sink::names;

/// Calls `visit` with each count that is stored, in their order. `malformed` and `no_key` are the sums of
/// their reasons; what is untracked or saturated within a summary stands in its lane.
fn each(account: &mut Account, mut visit: impl FnMut(&str, &mut u64)) {
    let Account {
        read,
        skipped,
        filtered,
        malformed: _,
        no_key: _,
        keyed,
        keyed_bytes,
        untracked,
        dropped,
        lost,
        saturated: _,
        late,
        backwards,
        jumps,
        reasons,
    } = account;
    visit("read", read);
    visit("skipped", &mut skipped.packets);
    visit("skipped_bytes", &mut skipped.bytes);
    visit("filtered", filtered);
    for (layer, fault) in
        Layer::ALL.iter().flat_map(|layer| Fault::ALL.map(|fault| (*layer, fault)))
    {
        let name = format!("malformed-{}-{}", names::layer(layer).0, names::fault(fault).0);
        visit(&name, reasons.malformed_mut(layer, fault));
    }
    for reason in NoKey::ALL {
        visit(&format!("no_key-{}", names::no_key(reason).0), reasons.no_key_mut(reason));
    }
    visit("keyed", keyed);
    visit("keyed_bytes", keyed_bytes);
    visit("untracked", &mut untracked.packets);
    visit("untracked_bytes", &mut untracked.bytes);
    visit("dropped", &mut dropped.packets);
    visit("dropped_bytes", &mut dropped.bytes);
    visit("lost", lost);
    visit("late", late);
    visit("backwards", backwards);
    visit("jumps", jumps);
}

/// Counts of an account by name, those of 0 left out.
fn counts(account: &Account) -> Vec<(String, u64)> {
    let mut counts = Vec::new();
    each(&mut account.clone(), |name, count| {
        if *count > 0 {
            counts.push((name.to_owned(), *count));
        }
    });
    counts
}

/// Appends the account.
pub(super) fn write(account: &Account, out: &mut Writer) {
    let counts = counts(account);
    out.number(counts.len() as u8);
    for (name, count) in counts {
        out.bytes(name.as_bytes());
        out.number(count);
    }
}

/// Takes an account, in which each packet that was read is counted once.
pub(super) fn read(from: &mut Reader<'_>) -> Result<Account, DecodeError> {
    let mut counts = Vec::new();
    for _ in 0..from.number::<u8>("number of counts")? {
        counts.push((text(from, "name of a count")?, from.number::<u64>("count")?));
    }
    let (mut account, mut counts) = (Account::default(), counts.into_iter().peekable());
    each(&mut account, |name, count| {
        if let Some((_, found)) = counts.next_if(|(next, found)| *next == name && *found > 0) {
            *count = found;
        }
    });
    let invalid = |reason| Err(from.invalid("account", 0, reason));
    if counts.next().is_some() {
        return invalid("a count is 0, out of order or none that this version knows");
    }
    let reasons = account.reasons;
    let malformed = checked_sum(reasons.malformed_reasons().map(|(.., count)| count));
    let no_key = checked_sum(reasons.no_key_reasons().map(|(_, count)| count));
    let (Some(malformed), Some(no_key)) = (malformed, no_key) else {
        return invalid("its counts do not add up");
    };
    (account.malformed, account.no_key) = (malformed, no_key);
    let outcomes = [account.skipped.packets, account.filtered, malformed, no_key, account.keyed];
    if checked_sum(outcomes.into_iter()) != Some(account.read) {
        return invalid("its counts do not add up");
    }
    Ok(account)
}

fn checked_sum(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0, u64::checked_add)
}

/// The sum of two accounts; `None` where a count would pass its largest number.
pub(super) fn sum(one: &Account, other: &Account) -> Option<Account> {
    let (mut sum, mut fits, mut others) = (one.clone(), true, Vec::new());
    each(&mut other.clone(), |_, count| others.push(*count));
    let mut others = others.into_iter();
    each(&mut sum, |_, count| match count.checked_add(others.next().unwrap_or_default()) {
        Some(total) => *count = total,
        None => fits = false,
    });
    (sum.malformed, sum.no_key) = (sum.reasons.malformed(), sum.reasons.no_key());
    fits.then_some(sum)
}
