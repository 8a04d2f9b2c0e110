//! Packing routes into a network: distributes the load over a very large set of routes to finish soonest.
//!
//! The linear programme is `maximise Σ x_c` with `Σ x_c · use_c(r) ≤ capacity(r)` for every resource `r`.
//! Each route is a column `c`. There are far too many routes to write down, so this module uses the simplex
//! method with *delayed column generation*: given a price for each resource, an [`Oracle`] returns a cheapest
//! route, which enters the basis if its cost is below its worth. At the end the prices bound the optimum:
//! with `q` the cost of the cheapest route, no packing is worth more than `Σ price(r) · capacity(r) / q`.
//!
//! Most resources never become full. So the basis matrix contains only the rows of resources that were full
//! at some point, and its dense inverse stays small; all other rows are checked when the length of a step is
//! determined.

/// The amount of each resource that one unit of a route uses: ascending by resource, each resource once, no
/// amount zero.
pub(super) type Use = Vec<(usize, f64)>;

/// Finds cheap routes.
pub(super) trait Oracle {
    /// The description of a route.
    type Route;

    /// A cheapest, or nearly cheapest, route at these prices; `None` if there is no route.
    fn cheapest(&mut self, prices: &[f64]) -> Option<(Self::Route, Use)>;
}

/// The result of a packing.
pub(super) struct Packing<R> {
    /// Routes with their amounts, all positive.
    pub routes: Vec<(R, f64)>,
    /// Prices at which no route of the oracle costs less than 1, so that all resources together are worth at
    /// least as much as any packing; `None` if there is no route, or nothing limits it.
    pub prices: Option<Vec<f64>>,
}

/// A packing is accepted if no other can be better by more than this factor.
const GOOD_ENOUGH: f64 = 1.006;
/// The oracle gets a weighted mean of prices. The best prices so far have this weight, and the current prices
/// have the rest. Prices of single steps oscillate, and routes that are cheap at averaged prices are better.
const STEADY: f64 = 0.7;
/// The maximum number of steps is this number plus the number of resources; usually far fewer are needed.
const STEPS: usize = 1000;
const TINY: f64 = 1e-9;
/// A route enters the basis only if its worth exceeds its cost by more than this.
const SAVING: f64 = 1e-7;

/// Returns the routes and amounts with the largest total.
pub(super) fn pack<O: Oracle>(capacity: &[f64], oracle: &mut O) -> Packing<O::Route> {
    let mut simplex = Simplex::new(capacity);
    for _ in 0..STEPS + capacity.len() {
        let column = match simplex.most_negative_price() {
            Some(row) => Some(Column { route: None, uses: vec![(row, 1.0)], worth: 0.0 }),
            None => simplex.route(oracle),
        };
        if !column.is_some_and(|column| simplex.enter(column)) {
            break;
        }
    }
    simplex.finish(capacity)
}

struct Column<R> {
    /// The route; `None` for the slack of a row.
    route: Option<R>,
    uses: Use,
    worth: f64,
}

struct Simplex<R> {
    capacity: Vec<f64>,
    /// The position of each row in the basis matrix; `None` for rows outside.
    position: Vec<Option<usize>>,
    rows: Vec<usize>,
    columns: Vec<Column<R>>,
    /// The amount of each basic column.
    amounts: Vec<f64>,
    /// The inverse of the basis matrix, rows by columns.
    inverse: Vec<Vec<f64>>,
    prices: Vec<f64>,
    /// The prices that prove the bound.
    best: Vec<f64>,
    bound: f64,
}

impl<R> Simplex<R> {
    /// Starts with an empty basis and slightly perturbed capacities, because the simplex method may cycle if
    /// capacities are equal.
    fn new(capacity: &[f64]) -> Self {
        let apart = |row: usize| 1.0 + 1e-6 * ((row * 7919) % 1009) as f64 / 1009.0;
        let capacity: Vec<f64> = capacity.iter().enumerate().map(|(row, &c)| c * apart(row)).collect();
        let mut simplex = Self {
            position: vec![None; capacity.len()],
            rows: Vec::new(),
            columns: Vec::new(),
            amounts: Vec::new(),
            inverse: Vec::new(),
            prices: vec![0.0; capacity.len()],
            best: Vec::new(),
            bound: f64::INFINITY,
            capacity,
        };
        simplex.price();
        simplex
    }

    /// Computes the prices at which every basic column costs what it is worth. Every limited resource also
    /// gets a tiny extra price, so that among routes of equal cost the oracle finds the one that uses least.
    fn price(&mut self) {
        for (price, &capacity) in self.prices.iter_mut().zip(&self.capacity) {
            *price = if capacity.is_finite() && capacity > 0.0 { 1e-9 / capacity } else { 0.0 };
        }
        for (position, &row) in self.rows.iter().enumerate() {
            let price =
                self.columns.iter().zip(&self.inverse).map(|(column, line)| column.worth * line[position]);
            self.prices[row] += price.sum::<f64>();
        }
    }

    fn most_negative_price(&self) -> Option<usize> {
        let relative = |row: usize| self.prices[row] * self.capacity[row];
        let negative =
            self.rows.iter().copied().filter(|&row| relative(row) < -1e-7 * (1.0 + self.value_of_prices()));
        negative.min_by(|&a, &b| relative(a).total_cmp(&relative(b)))
    }

    fn value_of_prices(&self) -> f64 {
        self.rows.iter().map(|&row| (self.prices[row] * self.capacity[row]).abs()).sum()
    }

    /// A route worth entering the basis; `None` if the packing is good enough or no such route exists.
    fn route<O: Oracle<Route = R>>(&mut self, oracle: &mut O) -> Option<Column<R>> {
        let value: f64 =
            self.amounts.iter().zip(&self.columns).map(|(amount, column)| amount * column.worth).sum();
        if !self.best.is_empty() {
            let mixed = |(best, price): (&f64, &f64)| STEADY * best + (1.0 - STEADY) * price.max(0.0);
            let between: Vec<f64> = self.best.iter().zip(&self.prices).map(mixed).collect();
            let (route, uses) = oracle.cheapest(&between)?;
            self.prove(&between, &uses);
            if value * GOOD_ENOUGH >= self.bound {
                return None;
            }
            if cost(&uses, &self.prices) < 1.0 - SAVING {
                return Some(Column { route: Some(route), uses, worth: 1.0 });
            }
        }
        // Prices below 0 are rounding errors here.
        let prices: Vec<f64> = self.prices.iter().map(|price| price.max(0.0)).collect();
        let (route, uses) = oracle.cheapest(&prices)?;
        self.prove(&prices, &uses);
        let saves = cost(&uses, &self.prices) < 1.0 - SAVING && value * GOOD_ENOUGH < self.bound;
        saves.then_some(Column { route: Some(route), uses, worth: 1.0 })
    }

    /// Records the bound that these prices prove, given a cheapest route at them.
    fn prove(&mut self, prices: &[f64], cheapest: &Use) {
        let cost = cost(cheapest, prices);
        if self.rows.is_empty() || cost <= 0.0 {
            return;
        }
        let finite = prices.iter().zip(&self.capacity).filter(|(_, capacity)| capacity.is_finite());
        let bound = finite.map(|(price, capacity)| price * capacity).sum::<f64>() / cost;
        if bound < self.bound {
            self.bound = bound;
            self.best = prices.iter().map(|price| price / cost).collect();
        }
    }

    /// Brings a column into the basis, with the largest amount that fits, in place of another column or a
    /// row's slack. Returns false if the amount would be unlimited.
    fn enter(&mut self, column: Column<R>) -> bool {
        let steps = self.solve(&column.uses);
        let (left, rates) = self.slacks(&column.uses, &steps);
        let leaving = self.first_to_go(&steps, &left, &rates);
        match leaving {
            None => return false, // Unbounded: all capacities are infinite.
            Some(Leaving::Column(at)) => self.replace(at, column, &steps),
            Some(Leaving::Slack(row)) => self.border(row, column, &steps, rates[row]),
        }
        self.measure();
        self.price();
        true
    }

    /// The decrease of each basic column's amount per unit of a new column.
    fn solve(&self, uses: &Use) -> Vec<f64> {
        let tight: Vec<(usize, f64)> =
            uses.iter().filter_map(|&(row, uses)| Some((self.position[row]?, uses))).collect();
        self.inverse
            .iter()
            .map(|line| tight.iter().map(|&(position, uses)| line[position] * uses).sum())
            .collect()
    }

    /// For every row its slack, and the rate at which the new column uses it up.
    fn slacks(&self, uses: &Use, steps: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut left, mut rates) = (self.capacity.clone(), vec![0.0; self.capacity.len()]);
        uses.iter().for_each(|&(row, uses)| rates[row] += uses);
        for ((column, &amount), &step) in self.columns.iter().zip(&self.amounts).zip(steps) {
            for &(row, uses) in &column.uses {
                left[row] -= uses * amount;
                rates[row] -= uses * step;
            }
        }
        (left, rates)
    }

    fn first_to_go(&self, steps: &[f64], left: &[f64], rates: &[f64]) -> Option<Leaving> {
        let columns =
            steps.iter().enumerate().map(|(at, &step)| (Leaving::Column(at), self.amounts[at], step));
        let slacks = (0..rates.len()).filter(|&row| self.position[row].is_none());
        let slacks = slacks.map(|row| (Leaving::Slack(row), left[row], rates[row]));
        let mut first: Option<(f64, f64, Leaving)> = None;
        for (leaving, have, rate) in
            columns.chain(slacks).filter(|&(_, have, rate)| rate > TINY && have.is_finite())
        {
            let until = have.max(0.0) / rate;
            let sooner = first.as_ref().is_none_or(|&(other, larger, _)| {
                until < other * (1.0 - TINY) || (until <= other * (1.0 + TINY) && rate > larger)
            });
            if sooner {
                first = Some((until, rate, leaving));
            }
        }
        first.map(|(_, _, leaving)| leaving)
    }

    fn replace(&mut self, at: usize, column: Column<R>, steps: &[f64]) {
        let mut line = std::mem::take(&mut self.inverse[at]);
        line.iter_mut().for_each(|entry| *entry /= steps[at]);
        for (other, &step) in
            self.inverse.iter_mut().zip(steps).filter(|(other, step)| !other.is_empty() && **step != 0.0)
        {
            other.iter_mut().zip(&line).for_each(|(entry, new)| *entry -= step * new);
        }
        self.inverse[at] = line;
        self.columns[at] = column;
    }

    /// Adds a row and a column to the basis; `pivot` is the row's use per unit of the column after
    /// elimination.
    fn border(&mut self, row: usize, column: Column<R>, steps: &[f64], pivot: f64) {
        let in_row: Vec<f64> = self.columns.iter().map(|column| uses_of(&column.uses, row)).collect();
        let mut line: Vec<f64> = (0..self.rows.len())
            .map(|position| self.inverse.iter().zip(&in_row).map(|(line, uses)| line[position] * uses).sum())
            .collect();
        line.iter_mut().for_each(|entry| *entry /= -pivot);
        for (other, &step) in self.inverse.iter_mut().zip(steps) {
            other.iter_mut().zip(&line).for_each(|(entry, new)| *entry -= step * new);
            other.push(-step / pivot);
        }
        line.push(1.0 / pivot);
        self.inverse.push(line);
        self.position[row] = Some(self.rows.len());
        self.rows.push(row);
        self.columns.push(column);
        self.amounts.push(0.0);
    }

    fn measure(&mut self) {
        let capacities: Vec<f64> = self.rows.iter().map(|&row| self.capacity[row]).collect();
        let amount =
            |line: &Vec<f64>| line.iter().zip(&capacities).map(|(entry, capacity)| entry * capacity).sum();
        self.amounts = self.inverse.iter().map(amount).collect();
    }

    /// The result, scaled to fit the unperturbed capacities.
    fn finish(self, capacity: &[f64]) -> Packing<R> {
        let mut taken = vec![0.0; capacity.len()];
        for (column, &amount) in
            self.columns.iter().zip(&self.amounts).filter(|(column, _)| column.route.is_some())
        {
            column.uses.iter().for_each(|&(row, uses)| taken[row] += uses * amount.max(0.0));
        }
        let over = taken.iter().zip(capacity).filter(|(_, capacity)| capacity.is_finite());
        let over = over.map(|(taken, capacity)| taken / capacity).fold(1.0, f64::max);
        let most = self.amounts.iter().copied().fold(0.0, f64::max);
        let routes = self.columns.into_iter().zip(self.amounts);
        let routes = routes.filter(|&(_, amount)| amount > 1e-6 * most);
        let routes = routes.filter_map(|(column, amount)| Some((column.route?, amount / over))).collect();
        let prices = (!self.best.is_empty()).then_some(self.best);
        Packing { routes, prices }
    }
}

enum Leaving {
    Column(usize),
    Slack(usize),
}

fn cost(uses: &Use, prices: &[f64]) -> f64 {
    uses.iter().map(|&(row, uses)| uses * prices[row]).sum()
}

fn uses_of(uses: &Use, row: usize) -> f64 {
    uses.binary_search_by_key(&row, |&(row, _)| row).map_or(0.0, |at| uses[at].1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An oracle over an explicit list of routes.
    struct Listed(Vec<Use>);

    impl Oracle for Listed {
        type Route = usize;

        fn cheapest(&mut self, prices: &[f64]) -> Option<(usize, Use)> {
            let cost = |uses: &Use| -> f64 { uses.iter().map(|&(row, uses)| uses * prices[row]).sum() };
            let at = (0..self.0.len()).min_by(|&a, &b| cost(&self.0[a]).total_cmp(&cost(&self.0[b])))?;
            Some((at, self.0[at].clone()))
        }
    }

    /// A reference solution by multiplicative weights: slow, simple, and correct within a few percent.
    fn by_weights(capacity: &[f64], routes: &[Use]) -> f64 {
        let step = 0.02;
        let mut lengths: Vec<f64> = capacity.iter().map(|capacity| 1.0 / capacity).collect();
        let (mut total, mut taken) = (0.0, vec![0.0; capacity.len()]);
        for _ in 0..6000 {
            let cost = |uses: &Use| -> f64 { uses.iter().map(|&(row, uses)| uses * lengths[row]).sum() };
            let best = routes.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("a route");
            let most = best.iter().map(|&(row, uses)| capacity[row] / uses).fold(f64::INFINITY, f64::min);
            total += most;
            for &(row, uses) in best {
                taken[row] += uses * most;
                lengths[row] *= 1.0 + step * uses * most / capacity[row];
            }
            let sum: f64 = lengths.iter().zip(capacity).map(|(length, capacity)| length * capacity).sum();
            lengths.iter_mut().for_each(|length| *length /= sum);
        }
        let over = taken.iter().zip(capacity).map(|(taken, capacity)| taken / capacity).fold(0.0, f64::max);
        total / over
    }

    fn routes(rows: usize) -> impl Strategy<Value = Vec<Use>> {
        let route = prop::collection::btree_map(0..rows, 1u8..4, 1..=rows.min(4));
        let route =
            route.prop_map(|uses| uses.into_iter().map(|(row, uses)| (row, f64::from(uses))).collect());
        prop::collection::vec(route, 1..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        #[test]
        fn a_packing_fits_and_is_as_good_as_its_bound(
            capacity in prop::collection::vec(1u8..20, 6),
            routes in routes(6),
        ) {
            let capacity: Vec<f64> = capacity.into_iter().map(f64::from).collect();
            let packing = pack(&capacity, &mut Listed(routes.clone()));
            let mut taken = vec![0.0; capacity.len()];
            for &(route, amount) in &packing.routes {
                prop_assert!(amount > 0.0);
                routes[route].iter().for_each(|&(row, uses)| taken[row] += uses * amount);
            }
            prop_assert!(taken.iter().zip(&capacity).all(|(taken, capacity)| *taken <= capacity * (1.0 + 1e-9)));
            let value: f64 = packing.routes.iter().map(|(_, amount)| amount).sum();
            let prices = packing.prices.expect("there are routes, and limits");
            let bound: f64 = prices.iter().zip(&capacity).map(|(price, capacity)| price * capacity).sum();
            prop_assert!(bound <= value * 1.0065, "{} of {}", value, bound);
            let slow = by_weights(&capacity, &routes);
            prop_assert!(slow <= bound * 1.001 && value >= slow * 0.993, "{} against {}", value, slow);
        }
    }
}
