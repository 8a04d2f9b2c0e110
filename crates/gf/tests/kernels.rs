//! Tests every kernel that this CPU can run, against the field's definition and against the scalar kernel.

use gf::{Kernel, Pair, Single, Terms};
use proptest::prelude::*;
use proptest::sample::select;

/// The number of bytes around every slice that no kernel may modify.
const MARGIN: usize = 64;

fn scalar() -> Kernel {
    Kernel::named("scalar").expect("scalar is always available")
}

/// Computes products by logarithms to base 2, independently of the tables.
fn log_exp_product(a: u8, b: u8) -> u8 {
    let mut power = 1_u16;
    let (mut exp, mut log) = ([0; 255], [0; 256]);
    for (i, exp) in exp.iter_mut().enumerate() {
        *exp = power as u8;
        log[usize::from(power)] = i;
        power <<= 1;
        if power > 0xff {
            power ^= gf::POLYNOMIAL;
        }
    }
    if a == 0 || b == 0 { 0 } else { exp[(log[usize::from(a)] + log[usize::from(b)]) % 255] }
}

#[test]
fn all_products_agree_with_logarithms() {
    let all: Vec<u8> = (0..=255).collect();
    for c in 0..=255 {
        let expected: Vec<u8> = all.iter().map(|&x| log_exp_product(c, x)).collect();
        let elements: Vec<u8> = all.iter().map(|&x| gf::mul(c, x)).collect();
        assert_eq!(elements, expected, "c = {c}");
        for kernel in Kernel::available() {
            let (mut target, mut buffer) = (vec![0; 256], all.clone());
            kernel.mul_into(c, &all, &mut target);
            kernel.mul(c, &mut buffer);
            assert_eq!(target, expected, "{kernel:?}, c = {c}");
            assert_eq!(buffer, expected, "{kernel:?}, c = {c}");
        }
    }
}

#[test]
fn every_element_but_zero_has_an_inverse() {
    assert_eq!(gf::inv(0), None);
    for a in 1..=255 {
        assert_eq!(gf::mul(a, gf::inv(a).unwrap()), 1);
    }
}

#[test]
fn powers_are_repeated_products() {
    for base in 0..=255 {
        let mut expected = 1;
        for exponent in 0..300 {
            assert_eq!(gf::pow(base, exponent), expected);
            expected = gf::mul(expected, base);
        }
    }
}

/// A buffer, with the position of the slice under test.
#[derive(Clone, Debug, PartialEq)]
struct Region {
    bytes: Vec<u8>,
    offset: usize,
    length: usize,
}

impl Region {
    fn slice(&self) -> &[u8] {
        &self.bytes[self.offset..][..self.length]
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.offset..][..self.length]
    }
}

fn slices(regions: &[Region]) -> Vec<&[u8]> {
    regions.iter().map(Region::slice).collect()
}

fn slices_mut(regions: &mut [Region]) -> Vec<&mut [u8]> {
    regions.iter_mut().map(Region::slice_mut).collect()
}

fn lengths() -> impl Strategy<Value = usize> {
    let around = (select(vec![64_usize, 128, 256, 512, 1024, 4096]), 0..4_usize, 0..131_usize);
    prop_oneof![
        0..5000_usize,
        0..200_usize,
        around.prop_map(|(unit, count, shift)| (unit * count + shift).saturating_sub(65).min(5000)),
    ]
}

fn coefficient() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0), 1 => Just(1), 6 => any::<u8>()]
}

/// Generates regions with pseudo-random contents. Proptest need not shrink the bytes, and drawing each of
/// them would take most of the time.
fn region(length: usize) -> impl Strategy<Value = Region> {
    (any::<u64>(), 0..=64_usize).prop_map(move |(mut state, shift)| {
        let mut bytes = vec![0; MARGIN + shift + length + MARGIN];
        for byte in &mut bytes {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *byte = (state >> 56) as u8;
        }
        Region { bytes, offset: MARGIN + shift, length }
    })
}

prop_compose! {
    fn regions(count: std::ops::RangeInclusive<usize>, length: usize)
              (count in count)
              (regions in prop::collection::vec(region(length), count))
              -> Vec<Region> {
        regions
    }
}

#[derive(Clone, Debug)]
struct KernelCase {
    coefficients: Vec<u8>,
    sources: Vec<Region>,
    targets: Vec<Region>,
}

fn cases() -> impl Strategy<Value = KernelCase> {
    let regions = lengths().prop_flat_map(|length| (regions(0..=20, length), regions(0..=6, length)));
    regions.prop_flat_map(|(sources, targets)| {
        let pairs = sources.len() * targets.len();
        let coefficients = prop::collection::vec(coefficient(), pairs);
        coefficients.prop_map(move |coefficients| KernelCase {
            coefficients,
            sources: sources.clone(),
            targets: targets.clone(),
        })
    })
}

fn pairs() -> impl Strategy<Value = (u8, Region, Region)> {
    lengths().prop_flat_map(|length| (coefficient(), region(length), region(length)))
}

/// Asserts that every kernel changes `before` in the same way as the scalar kernel does, including the bytes
/// around the slices.
fn check<T: Clone + PartialEq + std::fmt::Debug>(before: &T, work: impl Fn(Kernel, &mut T)) {
    let mut expected = before.clone();
    work(scalar(), &mut expected);
    for &kernel in Kernel::available() {
        let mut after = before.clone();
        work(kernel, &mut after);
        assert!(after == expected, "{kernel:?} differs from scalar");
    }
}

proptest! {
    // The default, 256 cases, takes only a tenth of a second.
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn kernels_agree_on_one_source((c, source, target) in pairs()) {
        check(&target, |kernel, target| kernel.xor(source.slice(), target.slice_mut()));
        check(&target, |kernel, target| kernel.mul(c, target.slice_mut()));
        check(&target, |kernel, target| kernel.mul_into(c, source.slice(), target.slice_mut()));
        check(&target, |kernel, target| kernel.mul_add(c, source.slice(), target.slice_mut()));
    }

    #[test]
    fn kernels_agree_on_many_sources(case in cases()) {
        check(&case.targets, |kernel, targets| {
            kernel.combine(&case.coefficients, &slices(&case.sources), &mut slices_mut(targets));
        });
        check(&case.targets, |kernel, targets| {
            kernel.combine_add(&case.coefficients, &slices(&case.sources), &mut slices_mut(targets));
        });
    }

    /// Checks that pairs give the same results as plain sources that contain their sums, and that single
    /// terms give the same results as later calls of `mul_add`. Includes the scalar kernel.
    #[test]
    fn pairs_and_single_terms_equal_plain_sources(
        case in cases(),
        split in 0..=20_usize,
        ratio in coefficient(),
        picks in prop::collection::vec((0..6_usize, 0..20_usize, coefficient()), 0..12),
    ) {
        let sources = slices(&case.sources);
        let split = sources.len() - split.min(sources.len() / 2);
        let (plain, seconds) = sources.split_at(split);
        let firsts = &plain[plain.len() - seconds.len()..];
        let halves = || firsts.iter().zip(seconds);
        let c = |i: usize| ratio.wrapping_mul(i as u8 + 1);
        let pairs: Vec<Pair> =
            halves().enumerate().map(|(i, (first, second))| Pair { first, c: c(i), second }).collect();
        let sums: Vec<Vec<u8>> = halves().enumerate().map(|(i, (first, second))| {
            first.iter().zip(*second).map(|(&a, &b)| a ^ gf::mul(c(i), b)).collect()
        }).collect();
        let mut singles: Vec<Single> = picks.iter()
            .filter(|&&(target, source, _)| target < case.targets.len() && source < sources.len())
            .map(|&(target, source, c)| Single { target, c, source: sources[source] })
            .collect();
        singles.sort_by_key(|single| single.target);
        let made: Vec<&[u8]> = plain.iter().copied().chain(sums.iter().map(Vec::as_slice)).collect();
        let (mut expected, mut added) = (case.targets.clone(), case.targets.clone());
        scalar().combine(&case.coefficients, &made, &mut slices_mut(&mut expected));
        scalar().combine_add(&case.coefficients, &made, &mut slices_mut(&mut added));
        for targets in [&mut expected, &mut added] {
            for single in &singles {
                scalar().mul_add(single.c, single.source, targets[single.target].slice_mut());
            }
        }
        let terms = Terms { coefficients: &case.coefficients, sources: plain, pairs: &pairs, singles: &singles };
        for (expected, adds) in [(expected, false), (added, true)] {
            for kernel in Kernel::available() {
                let mut targets = case.targets.clone();
                kernel.combine_terms(terms, &mut slices_mut(&mut targets), adds);
                prop_assert!(targets == expected, "{:?}", kernel);
            }
        }
    }

    #[test]
    fn two_are_mixed_in_place((c, first, second) in pairs(), d in coefficient()) {
        let both = first.slice().iter().zip(second.slice());
        let expected: (Vec<u8>, Vec<u8>) =
            both.map(|(&a, &b)| (a ^ b, gf::mul(c, a) ^ gf::mul(d, b))).unzip();
        check(&[first.clone(), second.clone()], |kernel, [first, second]| {
            kernel.mix([c, d], first.slice_mut(), second.slice_mut());
            assert!((first.slice(), second.slice()) == (&expected.0[..], &expected.1[..]), "{kernel:?}");
        });
    }

    /// Checks that the scalar kernel itself matches the definition: sums of single products.
    #[test]
    fn scalar_matches_the_definition(case in cases()) {
        let mut targets = case.targets.clone();
        scalar().combine(&case.coefficients, &slices(&case.sources), &mut slices_mut(&mut targets));
        for (r, target) in targets.iter().enumerate() {
            let row = &case.coefficients[r * case.sources.len()..][..case.sources.len()];
            for (i, &byte) in target.slice().iter().enumerate() {
                let products = row.iter().zip(&case.sources).map(|(&c, s)| gf::mul(c, s.slice()[i]));
                prop_assert_eq!(byte, products.fold(0, |sum, product| sum ^ product));
            }
        }
    }
}

#[test]
fn no_sources_combine_to_zeros() {
    for kernel in Kernel::available() {
        let (mut a, mut b) = ([7; 100], [9; 100]);
        kernel.combine(&[], &[], &mut [&mut a, &mut b]);
        assert_eq!((a, b), ([0; 100], [0; 100]));
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_xor() {
    Kernel::best().xor(&[0; 4], &mut [0; 5]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_mul_into_even_for_zero() {
    Kernel::best().mul_into(0, &[0; 4], &mut [0; 5]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_mul_add_even_for_zero() {
    Kernel::best().mul_add(0, &[0; 4], &mut [0; 5]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_combine() {
    Kernel::best().combine(&[2, 3], &[&[0; 4], &[0; 5]], &mut [&mut [0; 4]]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_pairs() {
    let pair = Pair { first: &[0; 4], c: 2, second: &[0; 5] };
    let terms = Terms { coefficients: &[3], pairs: &[pair], ..Terms::default() };
    Kernel::best().combine_terms(terms, &mut [&mut [0; 4]], false);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_single_terms() {
    let single = Single { target: 0, c: 2, source: &[0; 5] };
    Kernel::best().combine_terms(Terms { singles: &[single], ..Terms::default() }, &mut [&mut [0; 4]], false);
}

#[test]
#[should_panic(expected = "a single term of no target")]
fn a_single_term_of_no_target_panics() {
    let single = Single { target: 1, c: 2, source: &[0; 4] };
    Kernel::best().combine_terms(Terms { singles: &[single], ..Terms::default() }, &mut [&mut [0; 4]], false);
}

#[test]
#[should_panic(expected = "do not ascend")]
fn single_terms_out_of_order_panic() {
    let single = |target| Single { target, c: 2, source: &[0; 4] };
    let terms = Terms { singles: &[single(1), single(0)], ..Terms::default() };
    Kernel::best().combine_terms(terms, &mut [&mut [0; 4], &mut [0; 4]], false);
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_panic_in_mix() {
    Kernel::best().mix([2, 3], &mut [0; 4], &mut [0; 5]);
}

#[test]
#[should_panic(expected = "a coefficient for each pair")]
fn a_missing_coefficient_panics() {
    Kernel::best().combine(&[2], &[&[0; 4], &[0; 4]], &mut [&mut [0; 4]]);
}
