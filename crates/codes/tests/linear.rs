//! Codes defined by their parity rows. Their local groups are found, they repair every loss that the rows
//! determine, and invalid generators are refused, also those that tolerate fewer losses than claimed.

mod stripe;

use codes::{CodeSpec, DecodeError, Generator, GeneratorError, Linear, LinearCode, Matrix};
use stripe::{Stripe, subsets};

fn spec_of(generator: Generator) -> CodeSpec {
    CodeSpec::Linear(LinearCode::Explicit(generator.into()))
}

/// Returns a code's generator as a user would write it.
fn text_of(name: &str) -> String {
    let code = name.parse::<CodeSpec>().expect(name).build().expect(name);
    let k = code.data_blocks();
    let unit = |row: usize| (0..k).map(|column| u8::from(row == column)).collect::<Vec<_>>();
    let encoding = code.encoding();
    let parity = |row: usize| {
        let mut dense = vec![0u8; k];
        encoding.row(row).iter().for_each(|&(source, coefficient)| dense[source as usize] = coefficient);
        dense
    };
    let rows = (0..k).map(unit).chain((0..code.blocks() - k).map(parity));
    rows.map(|row| row.iter().map(u8::to_string).collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn reads(stripe: &Stripe) -> Vec<usize> {
    (0..stripe.blocks()).map(|lost| stripe.reads_for(lost)).collect()
}

/// Checks that a code given only by its matrix reads as little as the code that the matrix was taken from.
#[test]
fn local_groups_are_found_in_the_rows() {
    for (name, tolerates) in [
        ("lrc-12-2-2", 3),
        ("lrc-6-2-2", 3),
        ("lrc-10-2-3", 4),
        ("lrc1-12-2-2", 3),
        ("lrc1-6-2-2", 3),
        ("ceph-lrc-8-4-3", 6),
        ("ceph-lrc-4-2-3", 2),
        ("uniform-lrc-12-2-2", 3),
        ("rs-14-10", 4),
    ] {
        let generator = Generator::from_text(&text_of(name)).expect(name);
        assert_eq!(generator.tolerates(), tolerates, "{name}");
        let found = Stripe::of(&spec_of(generator));
        let known = Stripe::named(name);
        for (lost, (found, known)) in reads(&found).into_iter().zip(reads(&known)).enumerate() {
            assert!(found <= known, "{name} b{lost}: {found} instead of {known}");
        }
    }
}

/// Checks that the groups of the usual constructions are found in wide codes, although not every set can be
/// tried.
#[test]
fn local_groups_of_wide_codes_are_found() {
    for name in ["lrc-96-8-4", "lrc-200-10-6", "uniform-lrc-72-4-4", "lrc1-120-6-5"] {
        let found = Stripe::of(&spec_of(Generator::from_text(&text_of(name)).expect(name)));
        assert!(reads(&found).iter().sum::<usize>() <= reads(&Stripe::named(name)).iter().sum(), "{name}");
    }
}

#[test]
fn a_group_whose_block_another_group_rebuilds_is_enough() {
    // b0 and b2 are in different local groups of three blocks and a local parity block, so each is rebuilt
    // from the three other blocks of its group.
    let stripe = Stripe::named("ceph-lrc-8-4-3");
    let recipe = stripe.repair_lost(&[0, 2]).expect("one loss in each of two groups");
    assert_eq!(recipe.sources().len(), 6);
    // Block 5 is b0 + b1, block 6 is b1 + b2. If b0 and b1 are lost, block 6 first yields b1, then block 5
    // yields b0.
    let rows = Matrix::from_rows([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [1, 2, 3, 4, 5]]);
    let chain = Stripe::of(&spec_of(Generator::new(rows).expect("a generator")));
    let recipe = chain.repair_lost(&[0, 1]).expect("two losses");
    let read: Vec<u16> = recipe.sources().iter().map(|source| source.block.0).collect();
    assert_eq!(read, [2, 5, 6]);
}

#[test]
fn every_loss_that_the_rows_determine_is_repaired() {
    for name in ["ceph-lrc-4-2-3", "ceph-shec-4-3-2", "ceph-shec-6-4-2", "par1-8-4", "uniform-lrc-6-2-2"] {
        let stripe = Stripe::named(name);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        let code = Linear::new(match stripe.code.spec() {
            CodeSpec::Linear(code) => code,
            _ => unreachable!(),
        });
        let parity = code.expect(name).parity_rows().clone();
        let all = Matrix::identity(k).stacked_on(&parity);
        for lost in (1..=n - k).flat_map(|size| subsets(n, size)) {
            let rank = all.select_rows(&stripe.others(&lost)).rank();
            match stripe.repair_lost(&lost) {
                Ok(_) => {}
                Err(DecodeError::Undecodable { .. }) => assert!(rank < k, "{name}: {lost:?}"),
                Err(error) => panic!("{name}: {lost:?}: {error}"),
            }
        }
    }
}

#[test]
fn shingled_codes_survive_what_they_promise() {
    for (name, losses) in [("ceph-shec-4-3-2", 2), ("ceph-shec-8-4-3", 3), ("ceph-shec-10-5-3", 3)] {
        let stripe = Stripe::named(name);
        for lost in subsets(stripe.blocks(), losses) {
            stripe.repair_lost(&lost).expect(name);
        }
    }
}

#[test]
fn uniform_lrcs_survive_one_loss_more_than_they_have_globals() {
    for (name, losses, locality) in
        [("uniform-lrc-12-2-2", 3, 7), ("uniform-lrc-16-3-3", 4, 7), ("uniform-lrc-9-2-3", 4, 6)]
    {
        let stripe = Stripe::named(name);
        for lost in subsets(stripe.blocks(), losses) {
            stripe.repair_lost(&lost).expect(name);
        }
        assert!(reads(&stripe).iter().all(|&reads| reads <= locality), "{name}: {:?}", reads(&stripe));
    }
}

#[test]
fn a_generator_is_its_name() {
    let generator =
        Generator::from_text("# a comment\n1 0\n0, 1\n\n0x01 1 # XOR\ntolerates 1\n").expect("a generator");
    assert_eq!(generator.to_string(), "explicit-3-2-1-x0101");
    let spec: CodeSpec = "explicit-3-2-1-x0101".parse().expect("a code");
    assert_eq!(spec, spec_of(generator));
    assert_eq!(reads(&Stripe::of(&spec)), [2, 2, 2]);
    // The `x` keeps a suffix of digits from being parsed as a number.
    assert_eq!("Explicit(3,2,1)-x0101".parse::<CodeSpec>().expect("a code"), spec);
}

#[test]
fn invalid_generators_are_refused() {
    let refused = |text: &str| Generator::from_text(text).expect_err(text);
    assert_eq!(refused("1 0\n0 1\n1 256"), GeneratorError::Number { line: 3, text: "256".into() });
    assert_eq!(refused("1 0\n0 1 1"), GeneratorError::Length { line: 2, found: 3, expected: 2 });
    assert_eq!(refused("0 1\n1 0\n1 1"), GeneratorError::NotSystematic { row: 0, k: 2 });
    assert_eq!(refused("1 0\n0 1\n1 1\n0 0"), GeneratorError::Zeros { row: 3 });
    assert_eq!(refused("1 0\n0 1"), GeneratorError::Shape { n: 2, k: 2 });
    assert_eq!(refused(""), GeneratorError::Shape { n: 0, k: 0 });
    assert_eq!(refused("1 0\n0 1\n1 1\n1 1\ntolerates 2"), GeneratorError::Claim { claimed: 2, found: 1 });
    for (name, message) in [
        ("explicit-3-2-1-x01", "2 hexadecimal digits, but 4 are needed"),
        ("explicit-3-2-1", "`explicit-3-2-1` is not of the form"),
        ("explicit-3-2-1-x0g01", "4 hexadecimal digits, but"),
        ("explicit-4-2-2-x01010101", "the matrix cannot decode every loss of 2 blocks"),
        ("explicit-4-2-9-x01010101", "the matrix cannot decode every loss of 9 blocks"),
        (
            "explicit-4-2-18446744073709551615-x01010101",
            "the matrix cannot decode every loss of 18446744073709551615 blocks",
        ),
        ("ceph-lrc-4-2-4", "ceph-lrc cuts k = 4 and m = 2 blocks into groups of l = 4"),
        ("ceph-shec-4-3-4", "ceph-shec needs 0 < c <= m <= k"),
    ] {
        let error = name.parse::<CodeSpec>().expect_err(name).to_string();
        assert!(error.starts_with(message), "{name}: {error}");
    }
    // Parsing fails if the claim would take too long to verify.
    let wide = format!("explicit-255-245-9-x{}", "01".repeat(2450));
    assert!(
        wide.parse::<CodeSpec>()
            .expect_err("unchecked")
            .to_string()
            .contains("there are too many combinations")
    );
}
