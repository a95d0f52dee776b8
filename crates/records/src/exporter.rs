//! The state of an exporter: templates, samplers, sequence numbers and account.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::account::{Account, Count};
use crate::queue::Queue;
use crate::record::Record;
use crate::template::Template;

/// Maximum number of ports of an exporter that count as exporters of their own.
const PORTS: usize = 64;
/// Maximum number of observation domains of an exporter.
const DOMAINS: usize = 64;
/// Maximum number of sampling intervals of an exporter, in all domains.
const SAMPLERS: usize = 256;
/// Maximum number of templates of an exporter, in all domains.
const TEMPLATES: usize = 256;
/// Maximum number of fields of all these templates.
const FIELDS: usize = 4096;

/// Largest gap in a sequence that counts as loss. A larger jump is a restart.
const LARGEST_GAP: u32 = 1 << 20;
/// Largest distance by which a datagram may be late.
const LATEST: u32 = 1 << 10;
/// So many late numbers in order are not late: the exporter has restarted.
const RESTARTED: u32 = 4;

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

/// The process that numbers its domains, among those of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Process {
    /// The one that sends from this port (RFC 7011, 8). 0 if the exporter has too many.
    Port(u16),
    /// The agent of sFlow with this address, perhaps behind a relay.
    Agent(IpAddr),
}

/// An observation domain of IPFIX, a source of NetFlow, or a sub-agent of sFlow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId {
    pub(crate) format: Format,
    pub(crate) process: Process,
    pub(crate) number: u32,
}

/// The packets of a domain that a sampling interval applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    All,
    /// Those that came in by this interface.
    Interface(u64),
    Sampler(u64),
}

#[derive(Default)]
struct Domain {
    /// The next expected sequence number.
    expected: Option<u32>,
    /// The latest late numbers.
    late: Option<Late>,
    used: u64,
}

/// Late sequence numbers in order.
#[derive(Clone, Copy, Default)]
struct Late {
    /// How many there are.
    numbers: u32,
    /// The number after the last one.
    next: u32,
    /// The sum of the gaps between them.
    gaps: u32,
}

impl Late {
    /// With another late number, and the one after it.
    fn then(self, number: u32, next: u32) -> Self {
        let gap = number.wrapping_sub(self.next);
        if self.numbers == 0 || gap > LATEST {
            return Self { numbers: 1, next, gaps: 0 };
        }
        Self { numbers: self.numbers + 1, next, gaps: self.gaps + gap }
    }
}

#[derive(Default)]
pub(crate) struct Exporter {
    pub(crate) account: Account,
    /// The number of its latest datagram, counted over all exporters.
    pub(crate) used: u64,
    /// The ports that it sent from, until there are more than [`PORTS`].
    ports: BTreeSet<u16>,
    domains: HashMap<DomainId, Domain>,
    /// Sampling intervals, each with the number of the datagram that gave it last.
    samplers: HashMap<(DomainId, Scope), (u64, u64)>,
    /// Templates, each with the number of the datagram that used it last.
    templates: HashMap<(DomainId, u16), (Arc<Template>, u64)>,
    /// Number of fields of all templates.
    fields: usize,
}

impl Exporter {
    /// The process behind a port. An exporter that changes its port with each datagram would lose
    /// its templates, so that ports count only while they are few.
    fn process(&mut self, port: u16) -> Process {
        if self.ports.len() <= PORTS {
            self.ports.insert(port);
        }
        Process::Port(if self.ports.len() > PORTS { 0 } else { port })
    }

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

    /// Checks a sequence number, and counts a gap before it as `lost`. The next number will be
    /// `step` larger, if that is known.
    pub(crate) fn sequence(&mut self, id: DomainId, number: u32, step: Option<u32>, lost: Count) {
        let domain = self.domain(id);
        let ahead = domain.expected.map_or(0, |expected| number.wrapping_sub(expected));
        let next = step.map(|step| number.wrapping_add(step));
        let (mut gap, is_late) = (ahead, ahead > u32::MAX - LATEST);
        if is_late {
            gap = 0;
            domain.late = next.map(|next| domain.late.unwrap_or_default().then(number, next));
            if let Some(late) = domain.late.filter(|late| late.numbers == RESTARTED) {
                (domain.expected, domain.late, gap) = (Some(late.next), None, late.gaps);
            }
        } else {
            (domain.expected, domain.late) = (next, None);
        }
        let is_gap = gap <= LARGEST_GAP;
        if is_gap {
            self.account.add(lost, gap.into());
        }
        self.account.add(Count::Restarts, u64::from(is_late || !is_gap));
    }

    /// Sets the sampling interval of the packets in a scope.
    pub(crate) fn set_sampler(&mut self, id: DomainId, scope: Scope, one_in: u64) {
        self.samplers.insert((id, scope), (one_in, self.used));
        if self.samplers.len() > SAMPLERS {
            let oldest = self.samplers.iter().min_by_key(|(id, (_, used))| (*used, **id));
            let oldest = oldest.map(|(id, _)| *id);
            oldest.map(|id| self.samplers.remove(&id));
        }
    }

    /// The sampling interval of a record: of its sampler, else of its interface, else of all
    /// packets of the domain. A record that does not name its sampler, or its interface, may be of
    /// any: it has an interval if they all have the same.
    pub(crate) fn sampler(
        &self,
        id: DomainId,
        sampler: Option<u64>,
        interface: Option<u64>,
    ) -> Option<u64> {
        let of = |scope| self.samplers.get(&(id, scope)).map(|(one_in, _)| *one_in);
        let of_sampler = || of(Scope::Sampler(sampler?));
        let of_interface = || of(Scope::Interface(interface?));
        let only = || {
            let may_be = |scope| match scope {
                Scope::All => true,
                Scope::Interface(_) => interface.is_none(),
                Scope::Sampler(_) => sampler.is_none(),
            };
            let ours = self.samplers.iter().filter(|((of, scope), _)| *of == id && may_be(*scope));
            let mut intervals = ours.map(|(_, (one_in, _))| *one_in);
            let first = intervals.next()?;
            intervals.all(|one_in| one_in == first).then_some(first)
        };
        of_sampler().or_else(of_interface).or_else(|| of(Scope::All)).or_else(only)
    }

    pub(crate) fn template(&mut self, domain: DomainId, number: u16) -> Option<Arc<Template>> {
        let (template, used) = self.templates.get_mut(&(domain, number))?;
        *used = self.used;
        Some(Arc::clone(template))
    }

    /// Removes a template.
    pub(crate) fn withdraw(&mut self, domain: DomainId, number: u16) {
        if let Some((template, _)) = self.templates.remove(&(domain, number)) {
            self.fields -= template.fields.len();
        }
    }

    /// Keeps a template. Evicts the least recently used ones if there are too many.
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

/// The context for reading a datagram.
pub(crate) struct Reading<'a> {
    pub(crate) exporter: &'a mut Exporter,
    /// The port that sent the datagram.
    pub(crate) port: u16,
    pub(crate) queue: &'a mut Queue,
    /// The sampling interval that overrides what the exporter reports.
    pub(crate) sampling: Option<u64>,
}

impl Reading<'_> {
    /// A domain of NetFlow or IPFIX.
    pub(crate) fn domain(&mut self, format: Format, number: u32) -> DomainId {
        DomainId { format, process: self.exporter.process(self.port), number }
    }

    pub(crate) fn count(&mut self, count: Count) {
        self.exporter.account.add(count, 1);
    }

    /// Takes a record that was sampled one in `one_in`, as the exporter reports.
    pub(crate) fn flow(&mut self, record: &Record, one_in: u64) {
        let one_in = self.sampling.unwrap_or(one_in);
        self.queue.flow(record, one_in, &mut self.exporter.account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::tests::of_fields;

    const DOMAIN: DomainId = domain(Format::Ipfix, 7);

    const fn domain(format: Format, number: u32) -> DomainId {
        DomainId { format, process: Process::Port(2055), number }
    }

    /// The counts of losses and restarts after these sequence numbers, with one record each.
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
        // The late number was counted as lost before.
        assert_eq!(counts(&[5, 7, 6, 8]), [1, 1]);
        assert_eq!(counts(&[5_000_000, 0, 1, 3]), [1, 1]);
        assert_eq!(counts(&[0, LARGEST_GAP + 2, LARGEST_GAP + 3]), [0, 1]);
    }

    #[test]
    fn an_exporter_that_restarts_early_loses_as_any_other() {
        // From the fourth number on, 0 is no late number.
        assert_eq!(counts(&[50, 0, 1, 2, 3, 4, 5]), [0, 4]);
        assert_eq!(counts(&[50, 0, 2, 4, 6, 8, 10]), [5, 4]);
        // Numbers that come in two orders are late.
        assert_eq!(counts(&[50, 54, 53, 52, 51, 55]), [3, 3]);
        assert_eq!(counts(&[50, 54, 51, 52, 53, 55]), [3, 3]);
    }

    #[test]
    fn no_number_is_expected_after_one_without_a_step() {
        let mut exporter = Exporter::default();
        exporter.sequence(DOMAIN, 1, None, Count::LostRecords);
        exporter.sequence(DOMAIN, 100, Some(1), Count::LostRecords);
        assert_eq!(exporter.account.get(Count::LostRecords), 0);
        exporter.sequence(DOMAIN, 102, Some(1), Count::LostRecords);
        assert_eq!(exporter.account.get(Count::LostRecords), 1);
    }

    #[test]
    fn the_least_recently_used_templates_are_evicted() {
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
        // A few large ones evict all others.
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
        exporter.withdraw(DOMAIN, 2009);
        assert!(exporter.template(DOMAIN, 2009).is_none());
    }

    #[test]
    fn domains_and_samplers_are_limited() {
        let mut exporter = Exporter::default();
        for number in 0..300 {
            exporter.used += 1;
            exporter.sequence(domain(Format::NetFlow9, number), 0, Some(1), Count::LostDatagrams);
            exporter.set_sampler(domain(Format::NetFlow9, number), Scope::All, 10);
            exporter.set_sampler(DOMAIN, Scope::Sampler(u64::from(number)), 20);
        }
        assert_eq!((exporter.domains.len(), exporter.samplers.len()), (DOMAINS, SAMPLERS));
        assert_eq!(exporter.sampler(DOMAIN, Some(299), None), Some(20));
        assert_eq!(exporter.sampler(DOMAIN, Some(0), None), None);
        assert_eq!(exporter.sampler(domain(Format::NetFlow9, 299), Some(1), None), Some(10));
        assert_eq!(exporter.sampler(domain(Format::NetFlow9, 0), None, None), None);
    }

    #[test]
    fn intervals_apply_within_their_scope() {
        let mut exporter = Exporter::default();
        exporter.set_sampler(domain(Format::Ipfix, 8), Scope::All, 7);
        exporter.set_sampler(DOMAIN, Scope::Sampler(3), 30);
        let of =
            |exporter: &Exporter, sampler, interface| exporter.sampler(DOMAIN, sampler, interface);
        assert_eq!(of(&exporter, Some(3), None), Some(30));
        assert_eq!(of(&exporter, None, Some(1)), Some(30));
        assert_eq!(of(&exporter, Some(4), None), None);
        exporter.set_sampler(DOMAIN, Scope::Interface(1), 30);
        assert_eq!(of(&exporter, None, None), Some(30));
        exporter.set_sampler(DOMAIN, Scope::Interface(2), 50);
        assert_eq!(of(&exporter, None, None), None);
        assert_eq!(of(&exporter, Some(4), Some(2)), Some(50));
        assert_eq!(of(&exporter, Some(4), Some(3)), None);
        exporter.set_sampler(DOMAIN, Scope::All, 90);
        let all = [(Some(3), Some(2)), (Some(4), Some(2)), (Some(4), Some(3)), (None, None)];
        let all = all.map(|(sampler, interface)| of(&exporter, sampler, interface));
        assert_eq!(all, [30, 50, 90, 90].map(Some));
    }

    #[test]
    fn ports_are_told_apart_while_they_are_few() {
        let mut exporter = Exporter::default();
        for port in [1..=PORTS as u16, 1..=PORTS as u16].into_iter().flatten() {
            assert_eq!(exporter.process(port), Process::Port(port));
        }
        for port in [1000, 1, 2000] {
            assert_eq!(exporter.process(port), Process::Port(0));
        }
        assert_eq!(exporter.ports.len(), PORTS + 1);
    }
}
