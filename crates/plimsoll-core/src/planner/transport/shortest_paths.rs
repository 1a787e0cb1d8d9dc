//! [`Lanes::cheapest`]: an optimum of the transportation problem by successive shortest paths with
//! potentials, in integers.
//!
//! Each step sends what is left of a source along the cheapest path to a sink with room, which may
//! redirect requests of other sources. Potentials keep all prices of the residual graph at 0 or
//! above, so that Dijkstra's algorithm finds the path; the graph is dense, so it needs no heap.

/// Requests of each source to each sink, by row.
pub(super) type Flows = Vec<u64>;

/// Sources, sinks, and what is paid between them. `room` is enough for `supply`.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) supply: Vec<u64>,
    pub(super) room: Vec<u64>,
    /// A row for each source.
    pub(super) prices: Vec<u32>,
}

/// Flows so far, and the graph of what they leave.
struct Residual<'a> {
    lanes: &'a Lanes,
    flows: Flows,
    supply: Vec<u64>,
    room: Vec<u64>,
    /// Potentials: the cheapest way so far, from where requests arrive.
    sources: Vec<i64>,
    sinks: Vec<i64>,
    /// Potential of the node behind all sinks.
    end: i64,
}

/// Distances from one source.
struct Distances {
    /// By reduced prices; `MAX` = not reached.
    sources: Vec<i64>,
    sinks: Vec<i64>,
    /// The sink whose requests a source would redirect; unset for the first source.
    before_source: Vec<usize>,
    before_sink: Vec<usize>,
    end: i64,
    /// The sink with room where the path ends.
    last: usize,
}

impl Lanes {
    /// Returns the cost of flows.
    pub(super) fn cost(&self, flows: &[u64]) -> u128 {
        let priced = flows.iter().zip(&self.prices);
        priced
            .map(|(flow, price)| u128::from(*flow) * u128::from(*price))
            .sum()
    }

    /// Returns the cheapest flows, and for each sink what one more unit of room would save.
    pub(super) fn cheapest(&self) -> (Flows, Vec<u64>) {
        let mut residual = Residual {
            lanes: self,
            flows: vec![0; self.prices.len()],
            supply: self.supply.clone(),
            room: self.room.clone(),
            sources: vec![0; self.supply.len()],
            sinks: vec![0; self.room.len()],
            end: 0,
        };
        for source in 0..self.supply.len() {
            while residual.supply[source] > 0 {
                let distances = residual.distances(source);
                residual.shift(&distances);
                residual.send(source, &distances);
            }
        }
        let end = residual.end;
        let sinks = residual.sinks.iter();
        let saved = sinks.map(|at| (end - at).max(0).unsigned_abs()).collect();
        (residual.flows, saved)
    }
}

impl Residual<'_> {
    const fn lane(&self, source: usize, sink: usize) -> usize {
        source * self.room.len() + sink
    }

    fn distances(&self, from: usize) -> Distances {
        let mut found = Distances {
            sources: vec![i64::MAX; self.supply.len()],
            sinks: vec![i64::MAX; self.room.len()],
            before_source: vec![usize::MAX; self.supply.len()],
            before_sink: vec![from; self.room.len()],
            end: i64::MAX,
            last: 0,
        };
        let mut done = vec![false; self.room.len()];
        self.reach_source(from, 0, &mut found);
        loop {
            let open = (0..done.len()).filter(|sink| !done[*sink]);
            let next = open.min_by_key(|sink| found.sinks[*sink]);
            let Some(sink) = next.filter(|sink| found.sinks[*sink] < found.end) else {
                return found;
            };
            done[sink] = true;
            let distance = found.sinks[sink];
            let end = distance + self.sinks[sink] - self.end;
            if self.room[sink] > 0 && end < found.end {
                (found.end, found.last) = (end, sink);
            }
            for source in 0..self.supply.len() {
                let redirects = self.flows[self.lane(source, sink)] > 0;
                if redirects && found.sources[source] == i64::MAX {
                    found.before_source[source] = sink;
                    self.reach_source(source, distance, &mut found);
                }
            }
        }
    }

    /// Sets the distance of a source, and lowers those of the sinks behind it.
    fn reach_source(&self, source: usize, distance: i64, found: &mut Distances) {
        found.sources[source] = distance;
        let at = self.sources[source];
        for sink in 0..self.room.len() {
            let price = i64::from(self.lanes.prices[self.lane(source, sink)]);
            let through = distance + price + at - self.sinks[sink];
            if through < found.sinks[sink] {
                found.sinks[sink] = through;
                found.before_sink[sink] = source;
            }
        }
    }

    /// Adds distances to the potentials.
    fn shift(&mut self, found: &Distances) {
        let add = |potentials: &mut [i64], distances: &[i64]| {
            for (potential, distance) in potentials.iter_mut().zip(distances) {
                *potential += distance.min(&found.end);
            }
        };
        add(&mut self.sources, &found.sources);
        add(&mut self.sinks, &found.sinks);
        self.end += found.end;
    }

    /// Sends as much as the path holds.
    fn send(&mut self, from: usize, found: &Distances) {
        let mut amount = self.supply[from].min(self.room[found.last]);
        let mut sink = found.last;
        let mut path = vec![];
        loop {
            let source = found.before_sink[sink];
            let before = found.before_source[source];
            path.push((self.lane(source, sink), before));
            if before == usize::MAX {
                break;
            }
            amount = amount.min(self.flows[self.lane(source, before)]);
            sink = before;
        }
        self.supply[from] -= amount;
        self.room[found.last] -= amount;
        for (lane, before) in path {
            self.flows[lane] += amount;
            if before != usize::MAX {
                let source = lane / self.room.len();
                let redirected = self.lane(source, before);
                self.flows[redirected] -= amount;
            }
        }
    }
}
