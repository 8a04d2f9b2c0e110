//! The reference: one table look-up per product, for every CPU. All other kernels are tested against it.

use crate::kernel::{Backend, Work};
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
            Work::Combine { coefficients, sources, targets, accumulate } => {
                if !accumulate {
                    targets.iter_mut().for_each(|target| target.fill(0));
                }
                add_products(coefficients, sources, targets);
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

fn add_products(coefficients: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    for (r, target) in targets.iter_mut().enumerate() {
        let row = &coefficients[r * sources.len()..][..sources.len()];
        for (&c, source) in row.iter().zip(sources) {
            let products = &PRODUCTS[usize::from(c)];
            for (t, &s) in target.iter_mut().zip(*source) {
                *t ^= products[usize::from(s)];
            }
        }
    }
}
