//! Counts of what occurred in runs, for the test that everything occurs.

/// Declares the counts: each kind of event once.
macro_rules! coverage {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// Counts of what occurred.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Coverage {
            $($(#[$doc])* pub(crate) $kind: u64,)*
        }

        impl std::ops::AddAssign for Coverage {
            fn add_assign(&mut self, other: Self) {
                $(self.$kind += other.$kind;)*
            }
        }

        impl Coverage {
            /// Every kind with its count.
            fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($kind), self.$kind),)*].into_iter()
            }
        }
    };
}

coverage! {
    /// Replies.
    replies,
    /// Announces refused as busy: the batches of a worker were in flight.
    busy_announces,
    /// Scrapes refused as busy.
    busy_scrapes,
    /// Requests with an invalid connection id.
    invalid_ids,
    /// Datagrams that found a full receive buffer.
    dropped,
    /// Peers removed after their lifetime.
    expired,
    /// Steps of the wall clock.
    clock_steps,
    /// The same, to 1970.
    clock_resets,
    /// Workers that took no turn for some seconds.
    stalls,
    /// Requests that waited for a second or more.
    late_replies,
    /// Reloads.
    reloads,
    /// Reloads with another list.
    new_lists,
    /// Changes of a list.
    list_changes,
    /// Swarms removed because the list refuses them.
    purged,
    /// Upgrades.
    upgrades,
    /// Upgrades that failed while the peers were sent.
    failed_dumps,
    /// Upgrades that failed after the workers had stopped receiving.
    failed_pauses,
    /// Newcomers not stored because of `limits.peers`.
    refused_full,
    /// Newcomers not stored because of `limits.source_peers_per_swarm`.
    refused_per_swarm,
    /// Newcomers not stored because of `limits.source_peers`.
    refused_of_source,
    /// Newcomers not stored because of `limits.source_new_swarms`.
    refused_new_swarms,
    /// Peers replaced by newcomers to a full tracker.
    replaced,
    /// Runs that ended early: a swarm was refused while an upgrade brought its changes, and was
    /// permitted again before the purge, so it has the peers of the dump.
    cut_short,
    /// Newcomers not stored, and peers replaced, because sources share cells of a table
    /// (decision 62).
    misjudged,
}

impl Coverage {
    /// Whether the model has accepted little that it could not decide.
    pub(crate) fn has_few_exceptions(&self) -> bool {
        let judged = self.replaced + self.refused_of_source + self.refused_new_swarms;
        self.misjudged * 50 <= judged && self.cut_short * 100 <= self.upgrades
    }

    /// The kinds that have not occurred.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let mut missing: Vec<_> = self.kinds().filter(|it| it.1 == 0).map(|it| it.0).collect();
        missing.retain(|kind| !["misjudged", "cut_short"].contains(kind));
        missing
    }
}
