//! The account: what became of every packet. Each is counted once, or counted as not counted, with
//! the reason.

use flowgauge_core::packet::KeylessCounts;
use flowgauge_core::terms::Size;

/// The account of an epoch or of a whole run. Invariant: `read = skipped + filtered + malformed +
/// no_key + keyed`, and `keyed = ingested + untracked + dropped`.
///
/// ```
/// use flowgauge_engine::account::Account;
///
/// let mut total = Account { read: 10, keyed: 8, filtered: 2, ..Account::default() };
/// total.add(&Account { read: 5, keyed: 4, malformed: 1, ..Account::default() });
/// let Account { read, filtered, malformed, no_key, keyed, .. } = total;
/// assert_eq!(read, total.skipped.packets + filtered + malformed + no_key + keyed);
/// assert_eq!(keyed, 12);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets that the source delivered.
    pub read: u64,
    /// Packets and bytes that a sampler before headers skipped.
    pub skipped: Size,
    /// Packets that the filter rejected.
    pub filtered: u64,
    /// Packets whose bytes end before the header that the key needs, or contradict themselves.
    pub malformed: u64,
    /// Sound packets without an IP header.
    pub no_key: u64,
    /// Packets that have a key.
    pub keyed: u64,
    /// Their bytes on the wire.
    pub keyed_bytes: u64,
    /// Keyed packets and bytes whose key had no room in the summary.
    pub untracked: Size,
    /// Keyed packets and bytes that no worker had time for.
    pub dropped: Size,
    /// Packets that were lost before they could be read.
    pub lost: u64,
    /// Increments that a full counter could not take.
    pub saturated: Size,
    /// Packets older than the open epoch; they are counted in it.
    pub late: u64,
    /// Packets older than the one before them.
    pub backwards: u64,
    /// Packets more than an hour younger than the one before them.
    pub jumps: u64,
    /// Epochs in which packets may have passed unseen, since an interface was down; over 1 only
    /// if epochs were merged.
    pub outages: u64,
    /// `malformed` and `no_key`, by reason.
    pub reasons: KeylessCounts,
}

impl Account {
    /// Adds the account of another epoch.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.skipped += other.skipped;
        self.filtered += other.filtered;
        self.malformed += other.malformed;
        self.no_key += other.no_key;
        self.keyed += other.keyed;
        self.keyed_bytes += other.keyed_bytes;
        self.untracked += other.untracked;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.saturated += other.saturated;
        self.late += other.late;
        self.backwards += other.backwards;
        self.jumps += other.jumps;
        self.outages += other.outages;
        self.reasons.add(&other.reasons);
    }
}
