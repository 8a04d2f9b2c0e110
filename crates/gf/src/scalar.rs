//! The reference kernel: one table look-up per product, on any CPU. All other kernels are tested against it.

use crate::kernel::{Backend, Terms, Work};
use crate::tables::PRODUCTS;

/// The reference kernel.
pub(crate) struct Scalar;

impl Backend for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn run(&self, work: Work<'_, '_>) {
        match work {
            Work::Xor { source, target } => xor(source, target),
            Work::Scale { c, buffer } => scale(c, buffer),
            Work::Mix { ratios, first, second } => mix(ratios, first, second),
            Work::Combine { terms, targets, accumulate } => {
                if !accumulate {
                    targets.iter_mut().for_each(|target| target.fill(0));
                }
                add_products(terms, targets);
            }
        }
    }
}

fn xor(source: &[u8], target: &mut [u8]) {
    for (t, s) in target.iter_mut().zip(source) {
        *t ^= s;
    }
}

fn scale(c: u8, buffer: &mut [u8]) {
    let products = &PRODUCTS[usize::from(c)];
    for b in buffer {
        *b = products[usize::from(*b)];
    }
}

fn mix([p, q]: [u8; 2], first: &mut [u8], second: &mut [u8]) {
    let (p, q) = (&PRODUCTS[usize::from(p)], &PRODUCTS[usize::from(q)]);
    for (a, b) in first.iter_mut().zip(second) {
        (*a, *b) = (*a ^ *b, p[usize::from(*a)] ^ q[usize::from(*b)]);
    }
}

fn add_products(terms: Terms<'_>, targets: &mut [&mut [u8]]) {
    let Terms { coefficients, sources, pairs, singles } = terms;
    let columns = sources.len() + pairs.len();
    for (r, target) in targets.iter_mut().enumerate() {
        let (of_sources, of_pairs) = coefficients[r * columns..][..columns].split_at(sources.len());
        for (&c, source) in of_sources.iter().zip(sources) {
            add_product(c, source, target);
        }
        for (&c, pair) in of_pairs.iter().zip(pairs) {
            add_product(c, pair.first, target);
            add_product(PRODUCTS[usize::from(c)][usize::from(pair.c)], pair.second, target);
        }
    }
    for single in singles {
        add_product(single.c, single.source, targets[single.target]);
    }
}

fn add_product(c: u8, source: &[u8], target: &mut [u8]) {
    let products = &PRODUCTS[usize::from(c)];
    for (t, &s) in target.iter_mut().zip(source) {
        *t ^= products[usize::from(s)];
    }
}
