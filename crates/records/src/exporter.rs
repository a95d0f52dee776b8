//! What is kept of an exporter: its templates, samplers, sequence numbers and account.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::account::{Account, Count};
use crate::queue::Queue;
use crate::record::Record;
use crate::template::Template;

/// Observation domains of an exporter that are kept.
const DOMAINS: usize = 64;
/// Its samplers in each of them.
const SAMPLERS: usize = 16;
/// Its templates in all domains, and their fields.
const TEMPLATES: usize = 256;
const FIELDS: usize = 4096;

/// Numbers that are missing in a sequence at most. A larger jump is a restart.
const LARGEST_GAP: u32 = 1 << 20;
/// Numbers by which a datagram may be late.
const LATEST: u32 = 1 << 10;

/// The formats of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Format {
    NetFlow5,
    NetFlow9,
    Ipfix,
    SFlow,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NetFlow5 => "NetFlow 5",
            Self::NetFlow9 => "NetFlow 9",
            Self::Ipfix => "IPFIX",
            Self::SFlow => "sFlow 5",
        }
    }
}

/// An observation domain of IPFIX, a source of NetFlow, or a sub-agent of sFlow.
pub(crate) type DomainId = (Format, u32);

#[derive(Default)]
struct Domain {
    /// The next number of its sequence.
    expected: Option<u32>,
    /// One in how many packets each sampler takes; the sampler without a number is of all.
    samplers: BTreeMap<Option<u64>, u64>,
    used: u64,
}

#[derive(Default)]
pub(crate) struct Exporter {
    pub(crate) account: Account,
    /// The number of the latest datagram, of all exporters.
    pub(crate) used: u64,
    domains: HashMap<DomainId, Domain>,
    /// With the number of the datagram that used each last.
    templates: HashMap<(DomainId, u16), (Arc<Template>, u64)>,
    /// Fields of all templates.
    fields: usize,
}

impl Exporter {
    fn domain(&mut self, id: DomainId) -> &mut Domain {
        if self.domains.len() >= DOMAINS && !self.domains.contains_key(&id) {
            let oldest = self.domains.iter().min_by_key(|(id, domain)| (domain.used, **id));
            let oldest = oldest.map(|(id, _)| *id);
            oldest.map(|id| self.domains.remove(&id));
        }
        let domain = self.domains.entry(id).or_default();
        domain.used = self.used;
        domain
    }

    /// Counts what is missing before this number, behind which the next one is `step` larger, if that is
    /// known.
    pub(crate) fn sequence(&mut self, id: DomainId, number: u32, step: Option<u32>, lost: Count) {
        let domain = self.domain(id);
        let ahead = domain.expected.map_or(0, |expected| number.wrapping_sub(expected));
        if ahead <= u32::MAX - LATEST {
            domain.expected = step.map(|step| number.wrapping_add(step));
        }
        match ahead {
            0 => {}
            1..=LARGEST_GAP => self.account.add(lost, u64::from(ahead)),
            _ => self.account.add(Count::Restarts, 1),
        }
    }

    /// Takes note of one in how many packets a sampler takes.
    pub(crate) fn set_sampler(&mut self, id: DomainId, sampler: Option<u64>, one_in: u64) {
        let samplers = &mut self.domain(id).samplers;
        if samplers.len() >= SAMPLERS && !samplers.contains_key(&sampler) {
            samplers.pop_last();
        }
        samplers.insert(sampler, one_in);
    }

    /// One in how many packets a sampler takes: that of its number, else that of all, else the only one.
    pub(crate) fn sampler(&self, id: DomainId, sampler: Option<u64>) -> Option<u64> {
        let samplers = &self.domains.get(&id)?.samplers;
        let only = || (samplers.len() == 1).then(|| samplers.values().next()).flatten();
        samplers.get(&sampler).or_else(|| samplers.get(&None)).or_else(only).copied()
    }

    pub(crate) fn template(&mut self, domain: DomainId, number: u16) -> Option<Arc<Template>> {
        let (template, used) = self.templates.get_mut(&(domain, number))?;
        *used = self.used;
        Some(Arc::clone(template))
    }

    /// Forgets a template.
    pub(crate) fn withdraw(&mut self, domain: DomainId, number: u16) {
        if let Some((template, _)) = self.templates.remove(&(domain, number)) {
            self.fields -= template.fields.len();
        }
    }

    /// Forgets all templates of a domain, of flows or of options.
    pub(crate) fn withdraw_all(&mut self, domain: DomainId, options: bool) {
        let fields = &mut self.fields;
        self.templates.retain(|(own, _), (template, _)| {
            let stays = *own != domain || template.options != options;
            *fields -= if stays { 0 } else { template.fields.len() };
            stays
        });
    }

    /// Keeps a template, in place of those that were not used for the longest time where there are too
    /// many.
    pub(crate) fn keep(&mut self, domain: DomainId, number: u16, template: Template) {
        self.withdraw(domain, number);
        self.fields += template.fields.len();
        self.templates.insert((domain, number), (Arc::new(template), self.used));
        while self.templates.len() > TEMPLATES || self.fields > FIELDS {
            let others = self.templates.iter().filter(|(id, _)| **id != (domain, number));
            let oldest = others.min_by_key(|(id, (_, used))| (*used, **id)).map(|(id, _)| *id);
            let Some((domain, number)) = oldest else { return };
            self.withdraw(domain, number);
            self.account.add(Count::RefusedTemplates, 1);
        }
    }
}

/// A datagram of an exporter while it is read.
pub(crate) struct Reading<'a> {
    pub(crate) exporter: &'a mut Exporter,
    pub(crate) queue: &'a mut Queue,
    /// One in how many packets is sampled, whatever the exporter says.
    pub(crate) sampling: Option<u64>,
}

impl Reading<'_> {
    pub(crate) fn count(&mut self, count: Count) {
        self.exporter.account.add(count, 1);
    }

    /// Takes a record of which one in `one_in` packets was sampled, as the exporter says.
    pub(crate) fn flow(&mut self, record: &Record, one_in: u64) {
        let one_in = self.sampling.unwrap_or(one_in);
        self.queue.flow(record, one_in, &mut self.exporter.account);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::template::tests::of_fields;

    const DOMAIN: DomainId = (Format::Ipfix, 7);

    /// The counts of losses and restarts after these numbers, each of which stands for one record.
    fn counts(numbers: &[u32]) -> [u64; 2] {
        let mut exporter = Exporter::default();
        for number in numbers {
            exporter.sequence(DOMAIN, *number, Some(1), Count::LostRecords);
        }
        [Count::LostRecords, Count::Restarts].map(|count| exporter.account.get(count))
    }

    #[test]
    fn gaps_are_losses_and_jumps_are_restarts() {
        assert_eq!(counts(&[5, 6, 7]), [0, 0]);
        assert_eq!(counts(&[u32::MAX, 0, 1]), [0, 0]);
        assert_eq!(counts(&[5, 9, 10]), [3, 0]);
        assert_eq!(counts(&[u32::MAX - 1, 1]), [2, 0]);
        // Late, of which the gap before it was counted.
        assert_eq!(counts(&[5, 7, 6, 8]), [1, 1]);
        assert_eq!(counts(&[5_000_000, 0, 1, 3]), [1, 1]);
        assert_eq!(counts(&[0, LARGEST_GAP + 2, LARGEST_GAP + 3]), [0, 1]);
    }

    #[test]
    fn a_number_without_a_step_has_none_behind_it() {
        let mut exporter = Exporter::default();
        exporter.sequence(DOMAIN, 1, None, Count::LostRecords);
        exporter.sequence(DOMAIN, 100, Some(1), Count::LostRecords);
        assert_eq!(exporter.account.get(Count::LostRecords), 0);
        exporter.sequence(DOMAIN, 102, Some(1), Count::LostRecords);
        assert_eq!(exporter.account.get(Count::LostRecords), 1);
    }

    #[test]
    fn the_templates_used_last_stay() {
        let mut exporter = Exporter::default();
        for number in 0..TEMPLATES as u16 {
            exporter.used += 1;
            exporter.keep(DOMAIN, number, of_fields(2));
        }
        exporter.used += 1;
        assert!(exporter.template(DOMAIN, 0).is_some());
        exporter.used += 1;
        exporter.keep(DOMAIN, 1000, of_fields(2));
        assert!(exporter.template(DOMAIN, 0).is_some());
        assert!(exporter.template(DOMAIN, 1).is_none());
        assert!(exporter.template(DOMAIN, 1000).is_some());
        assert_eq!(exporter.account.get(Count::RefusedTemplates), 1);
        // A few large ones take the place of all others.
        for number in 2000..2010 {
            exporter.used += 1;
            exporter.keep(DOMAIN, number, of_fields(500));
        }
        assert_eq!(
            exporter.fields,
            exporter.templates.values().map(|(t, _)| t.fields.len()).sum::<usize>()
        );
        assert!(exporter.fields <= FIELDS);
        assert!(exporter.template(DOMAIN, 2009).is_some());
        exporter.withdraw_all(DOMAIN, false);
        assert_eq!((exporter.fields, exporter.templates.len()), (0, 0));
    }

    #[test]
    fn domains_and_samplers_are_limited() {
        let mut exporter = Exporter::default();
        for number in 0..200 {
            exporter.used += 1;
            exporter.set_sampler((Format::NetFlow9, number), None, 10);
            exporter.set_sampler(DOMAIN, Some(u64::from(number)), 20);
        }
        assert_eq!(exporter.domains.len(), DOMAINS);
        assert_eq!(exporter.domains[&DOMAIN].samplers.len(), SAMPLERS);
        assert_eq!(exporter.sampler(DOMAIN, Some(199)), Some(20));
        assert_eq!(exporter.sampler((Format::NetFlow9, 199), Some(1)), Some(10));
        assert_eq!(exporter.sampler((Format::NetFlow9, 0), None), None);
        exporter.set_sampler((Format::Ipfix, 8), Some(3), 30);
        let of = |sampler| exporter.sampler((Format::Ipfix, 8), sampler).unwrap();
        assert_eq!((of(None), of(Some(4))), (30, 30));
    }
}
