//! Batches and summaries whose key width is a run-time value, for code outside this crate.
//!
//! Summaries are generic over the words of their keys. They are instantiated here once for each
//! width, so that programs that link this crate do not compile them again. Choosing the width costs
//! one match for each batch.

use std::sync::Arc;

use flowgauge_kernel::{Digester, Seed};

use crate::accelerator::HeaderRate;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::catalog::{self, stored};
use crate::key::{FlowKey, Key8, Key16, Key37};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::concurrent::ConcurrentIngest;
use crate::summary::{
    Answers, BuildError, Incompatible, Info, Ingest, Options, Parameters, Reads, Setting, Summary,
};
use crate::terms::Size;

/// A key type of [`AnyBatch`] and [`AnySummary`].
pub(crate) trait Width: FlowKey {
    /// A batch of this width.
    fn any(batch: &mut Batch<Self>) -> BatchMut<'_>;
}

macro_rules! widths {
    ($($name:ident: $key:ty),*) => {
        /// A batch of keys of any width.
        ///
        /// ```
        /// use flowgauge_core::any::AnyBatch;
        /// use flowgauge_core::key::{FlowKey, Key8};
        ///
        /// let mut batch = AnyBatch::new(4);
        /// if let AnyBatch::Eight(batch) = &mut batch {
        ///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
        /// }
        /// assert_eq!(batch.as_mut().size().bytes, 1500);
        /// ```
        pub enum AnyBatch {
            $(#[doc = concat!("Keys of type `", stringify!($key), "`.")] $name(Batch<$key>),)*
        }

        /// A borrowed batch of keys of any width.
        pub enum BatchMut<'a> {
            $(#[doc = concat!("Keys of type `", stringify!($key), "`.")] $name(&'a mut Batch<$key>),)*
        }

        enum Inner {
            $($name(Kind<$key>),)*
        }

        $(impl Width for $key {
            fn any(batch: &mut Batch<Self>) -> BatchMut<'_> {
                BatchMut::$name(batch)
            }
        })*

        impl AnyBatch {
            /// An empty batch of keys of `key_bytes` canonical bytes.
            ///
            /// # Panics
            /// When no key has this length.
            pub fn new(key_bytes: usize) -> Self {
                $(if <$key>::holds(key_bytes) {
                    return Self::$name(Batch::new());
                })*
                unreachable!("no key has {key_bytes} bytes")
            }

            /// The batch, borrowed.
            pub fn as_mut(&mut self) -> BatchMut<'_> {
                match self {
                    $(Self::$name(batch) => BatchMut::$name(batch),)*
                }
            }
        }

        impl BatchMut<'_> {
            /// Borrows the same batch for a shorter lifetime.
            pub fn reborrow(&mut self) -> BatchMut<'_> {
                match self {
                    $(Self::$name(batch) => BatchMut::$name(batch),)*
                }
            }

            /// Swaps the contents with a batch of the same width, without copying rows.
            ///
            /// # Panics
            /// When the widths differ.
            pub fn swap(self, other: &mut AnyBatch) {
                match (self, other) {
                    $((Self::$name(one), AnyBatch::$name(other)) => std::mem::swap(one, other),)*
                    _ => unreachable!("{WIDTHS_DIFFER}"),
                }
            }

            /// Copies these rows with all columns to another batch of the same width.
            ///
            /// # Panics
            /// When the widths differ, or the rows exceed the free room.
            pub(crate) fn copy_rows(&self, rows: &[u8], to: &mut AnyBatch) {
                match (self, to) {
                    $((Self::$name(batch), AnyBatch::$name(to)) => to.push_rows(batch, rows),)*
                    _ => unreachable!("{WIDTHS_DIFFER}"),
                }
            }

            /// Distributes the rows: adds each row `row` to batch `to[row]` of `staged`. Calls
            /// `full` with the number and contents of each batch that reaches `batch_packets` rows,
            /// and then clears that batch.
            ///
            /// # Panics
            /// When the widths differ.
            pub fn deal(
                self,
                to: &[u16; BATCH_PACKETS],
                staged: &mut [AnyBatch],
                batch_packets: usize,
                full: &mut dyn FnMut(usize, BatchMut<'_>),
            ) {
                match self {
                    $(Self::$name(batch) => {
                        for (number, staged) in staged.iter_mut().enumerate() {
                            let AnyBatch::$name(staged) = staged else {
                                unreachable!("{WIDTHS_DIFFER}")
                            };
                            let (mut rows, mut dealt) = ([0; BATCH_PACKETS], 0);
                            for (row, to) in (0..=u8::MAX).zip(&to[..batch.len()]) {
                                rows[dealt] = row;
                                dealt += usize::from(usize::from(*to) == number);
                            }
                            let mut rows = &rows[..dealt];
                            while !rows.is_empty() {
                                let room = rows.len().min(batch_packets - staged.len());
                                staged.push_rows(batch, &rows[..room]);
                                rows = &rows[room..];
                                if staged.len() == batch_packets {
                                    full(number, BatchMut::$name(staged));
                                    staged.clear();
                                }
                            }
                        }
                    })*
                }
            }
        }

        impl AnySummary {
            /// Builds the algorithm called `name` behind accelerators, for keys of `key_bytes`
            /// canonical bytes: [`catalog::build_accelerated`].
            ///
            /// # Errors
            /// As [`catalog::build_accelerated`].
            ///
            /// # Panics
            /// When no key has this length.
            pub fn build(
                key_bytes: usize,
                accelerators: &[(String, Parameters)],
                name: &str,
                options: &Options,
            ) -> Result<Self, BuildError> {
                let options = options.clone().for_keys(key_bytes);
                $(if <$key>::holds(key_bytes) {
                    let own = catalog::build_accelerated::<$key>(accelerators, name, &options)?;
                    return Ok(Self(Inner::$name(Kind::Own(own)), key_bytes));
                })*
                unreachable!("no key has {key_bytes} bytes")
            }

            /// Builds the algorithm called `name` as a concurrent summary, which several workers
            /// fill at once: [`catalog::build_concurrent`].
            ///
            /// # Errors
            /// As [`catalog::build_concurrent`].
            ///
            /// # Panics
            /// When no key has this length.
            pub fn build_concurrent(
                key_bytes: usize,
                name: &str,
                options: &Options,
            ) -> Result<Self, BuildError> {
                let options = options.clone().for_keys(key_bytes);
                $(if <$key>::holds(key_bytes) {
                    let concurrent = catalog::build_concurrent::<$key>(name, &options)?.into();
                    return Ok(Self(Inner::$name(Kind::Concurrent(concurrent)), key_bytes));
                })*
                unreachable!("no key has {key_bytes} bytes")
            }

            /// Takes a batch, and computes its digests if they are missing.
            ///
            /// # Panics
            /// When the widths differ.
            #[inline]
            pub fn ingest(&mut self, batch: BatchMut<'_>) {
                match (&mut self.0, batch) {
                    $((Inner::$name(kind), BatchMut::$name(batch)) => kind.ingest(batch),)*
                    _ => unreachable!("{WIDTHS_DIFFER}"),
                }
            }

            /// Merges another summary of the same kind into this one.
            ///
            /// # Errors
            /// As [`Summary::merge`], and when the key widths differ or the summary is concurrent.
            pub fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
                match (&mut self.0, &other.0) {
                    $((Inner::$name(kind), Inner::$name(other)) => kind.merge(other),)*
                    _ => Err(Incompatible("their keys differ")),
                }
            }

            /// Decodes the stored form of a summary of keys of `key_bytes` canonical bytes, in at
            /// most `limit` bytes of memory: [`stored::decode_under`], or [`stored::decode_again`]
            /// with a spare summary. Also returns its algorithm and options. The summary must be
            /// part of bytes whose checksum was right, since its own is not computed again.
            ///
            /// # Errors
            /// As [`stored::decode_under`].
            ///
            /// # Panics
            /// When no key has this length.
            pub fn decode(
                key_bytes: usize,
                bytes: &[u8],
                limit: usize,
                file: Option<&Seed>,
                spare: Option<(Self, &'static Info, Options)>,
            ) -> Result<(Self, &'static Info, Options), DecodeError> {
                $(if <$key>::holds(key_bytes) {
                    let spare = spare.and_then(|(spare, info, options)| match spare.0 {
                        Inner::$name(Kind::Own(summary)) => {
 Some(stored::Decoded { info, options, summary })
 }
                        _ => None,
                    });
                    let lengths = key_bytes..=key_bytes;
                    let from = Reader::inside(bytes);
                    let decoded = stored::decode_of::<$key>(lengths, from, limit, file, spare)?;
                    let own = Self(Inner::$name(Kind::Own(decoded.summary)), key_bytes);
                    return Ok((own, decoded.info, decoded.options));
                })*
                unreachable!("no key has {key_bytes} bytes")
            }

            /// The digest of a key, given by its canonical bytes; `None` where it has another
            /// width.
            pub fn digest(&self, key: &[u8], digester: &Digester) -> Option<u64> {
                match &self.0 {
                    $(Inner::$name(_) => {
                        <$key>::matching(key, digester).map(|key| key.digest(digester))
                    })*
                }
            }

            /// Another handle of the same concurrent summary; `None` for a summary that one worker
            /// owns.
            pub fn another(&self) -> Option<Self> {
                match &self.0 {
                    $(Inner::$name(kind) => {
                        kind.another().map(|kind| Self(Inner::$name(kind), self.1))
                    })*
                }
            }
        }

        /// Evaluates an expression for the contained batch.
        macro_rules! each_batch {
            ($any:expr, $batch:ident => $do:expr) => {
                match $any {
                    $(BatchMut::$name($batch) => $do,)*
                }
            };
        }

        /// Evaluates an expression for the contained summary.
        macro_rules! each {
            ($any:expr, $kind:ident => $do:expr) => {
                match $any {
                    $(Inner::$name($kind) => $do,)*
                }
            };
        }
    };
}

widths!(
    Eight: Key8, Sixteen: Key16, ThirtySeven: Key37
);

const WIDTHS_DIFFER: &str = "the batches and summaries of a lane have one key width";

impl BatchMut<'_> {
    /// The number of rows in the batch.
    pub fn len(&self) -> usize {
        each_batch!(self, batch => batch.len())
    }

    /// Whether the batch has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the batch.
    pub fn clear(&mut self) {
        each_batch!(self, batch => batch.clear());
    }

    /// Packets and bytes of a batch of single packets.
    pub fn size(&self) -> Size {
        each_batch!(self, batch => batch.size())
    }

    /// The digests of the keys, which are computed if missing.
    pub fn digests(&mut self, digester: &Digester) -> &[u64] {
        each_batch!(self, batch => {
            batch.digest(digester);
            batch.digests()
        })
    }
}

/// A summary of keys of any width: owned by one worker, or a handle of a concurrent summary.
///
/// The second field is the number of canonical bytes of a key.
///
/// ```
/// use flowgauge_core::any::{AnyBatch, AnySummary};
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = AnySummary::build(4, &[], "linear-table", &options).unwrap();
/// let mut batch = AnyBatch::new(4);
/// if let AnyBatch::Eight(batch) = &mut batch {
///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 60, 0);
/// }
/// summary.ingest(batch.as_mut());
/// let (key, size) = summary.answers().flows().unwrap().get(0);
/// assert_eq!((key, size.bytes), (&[10, 0, 0, 1][..], 60));
/// ```
pub struct AnySummary(Inner, usize);

/// A summary of one key width.
enum Kind<K> {
    /// One worker fills it.
    Own(Box<dyn Summary<K>>),
    /// All workers fill it; this is one of the handles.
    Concurrent(Arc<dyn ConcurrentIngest<K>>),
}

impl AnySummary {
    /// Whether it is concurrent, so that several workers fill it at once.
    pub fn is_concurrent(&self) -> bool {
        each!(&self.0, kind => matches!(kind, Kind::Concurrent(_)))
    }

    /// Makes the counts of a concurrent summary since the last call readable, and begins its next
    /// epoch. Does nothing for a summary that one worker owns.
    ///
    /// # Errors
    /// When another worker still holds a handle.
    pub fn collect(&mut self) -> Result<(), Incompatible> {
        each!(&mut self.0, kind => kind.collect())
    }

    /// Passes on packets that accelerators hold back. Answers are complete only afterwards.
    pub fn settle(&mut self) {
        each!(&mut self.0, kind => kind.own(Ingest::settle));
    }

    /// Begins a new epoch: [`Summary::next_epoch`]. A concurrent summary began it at
    /// [`Self::collect`].
    pub fn next_epoch(&mut self) {
        each!(&mut self.0, kind => kind.own(Summary::next_epoch));
    }

    /// Forgets everything: [`Summary::clear`].
    pub fn clear(&mut self) {
        each!(&mut self.0, kind => kind.own(Summary::clear));
    }

    /// Begins another part of the same epoch: [`Summary::next_part`].
    pub fn next_part(&mut self) {
        each!(&mut self.0, kind => kind.own(Summary::next_part));
    }

    /// The answers; those of a concurrent summary are from its last [`Self::collect`].
    pub fn answers(&self) -> &dyn Answers {
        each!(&self.0, kind => kind.ordinary().answers())
    }

    /// The columns of batches that it reads.
    pub fn reads(&self) -> Reads {
        each!(&self.0, kind => kind.ordinary().reads())
    }

    /// The parameters in force, by their names in the catalog.
    pub fn parameters(&self) -> Vec<(&'static str, Setting)> {
        each!(&self.0, kind => kind.ordinary().parameters())
    }

    /// The accelerators before it, outermost first, with their parameters in force.
    pub fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        each!(&self.0, kind => kind.ordinary().accelerators())
    }

    /// The sampling rate, where the meter samples before headers are read.
    pub fn header_rate(&self) -> Option<HeaderRate> {
        each!(&self.0, kind => kind.ordinary().header_rate())
    }

    /// Records the packets that the meter skipped: [`Summary::passed_over`].
    pub fn passed_over(&mut self, packets: u64, one_in: u64) {
        each!(&mut self.0, kind => kind.own(|own| own.passed_over(packets, one_in)));
    }

    /// Appends the stored form, as [`stored::encode`] returns it, of a summary that the algorithm
    /// `info` built from `options`.
    pub fn write(&self, out: &mut Writer, info: &Info, options: &Options) {
        let options = options.clone().for_keys(self.1);
        each!(&self.0, kind => stored::write(out, info, &options, kind.ordinary()));
    }

    /// Upper bound of the stored form's length in bytes.
    pub fn most_stored_bytes(&self) -> usize {
        self.memory_bytes() + stored::FRAME_BYTES
    }

    /// Reserved memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        each!(&self.0, kind => match kind {
            Kind::Own(own) => own.memory_bytes(),
            Kind::Concurrent(concurrent) => concurrent.memory_bytes(),
        })
    }
}

impl<K: FlowKey> Kind<K> {
    #[inline]
    fn ingest(&mut self, batch: &mut Batch<K>) {
        match self {
            Self::Own(own) => own.ingest(batch),
            Self::Concurrent(concurrent) => concurrent.ingest(batch),
        }
    }

    fn own(&mut self, change: impl FnOnce(&mut dyn Summary<K>)) {
        if let Self::Own(own) = self {
            change(&mut **own);
        }
    }

    fn ordinary(&self) -> &dyn Summary<K> {
        match self {
            Self::Own(own) => &**own,
            Self::Concurrent(concurrent) => concurrent.ordinary(),
        }
    }

    fn collect(&mut self) -> Result<(), Incompatible> {
        if let Self::Concurrent(concurrent) = self {
            let held = Incompatible("a worker still fills a summary of a closed epoch");
            Arc::get_mut(concurrent).ok_or(held)?.collect();
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        match self {
            Self::Own(own) => own.merge(other.ordinary()),
            Self::Concurrent(_) => Err(Incompatible("several workers fill this one")),
        }
    }

    fn another(&self) -> Option<Self> {
        match self {
            Self::Own(_) => None,
            Self::Concurrent(concurrent) => Some(Self::Concurrent(Arc::clone(concurrent))),
        }
    }
}
