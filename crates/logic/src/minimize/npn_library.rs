//! Size-optimal Boolean chains of all functions of four inputs, over all two-input gates.
//!
//! Functions of one NPN class (equal up to negated inputs, permuted inputs and a negated output) need the same number
//! of gates. There are 222 classes. All but the constants and the projections are in [`CHAINS`], with several chains
//! each, so that a rewriting pass can choose the one that shares most nodes with the rest of the graph. The table is
//! the output of `examples/smallest_chains.rs`, which describes the exhaustive search and why the chains are optimal.
//! Their sizes agree with Knuth, The Art of Computer Programming, 7.1.2, table 1.
//!
//! A gate of a chain is a byte, `5 * pair + operation`. The pair of the signals i < j is j (j - 1) / 2 + i, where
//! signals 0 to 3 are the inputs and signal 4 + k is gate k.

use crate::xag::{Literal, Operation};
use std::sync::OnceLock;

/// The truth tables of the inputs.
pub(super) const INPUTS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
/// The maximum number of gates of a chain.
pub(super) const MAX_GATES: usize = 7;
/// The maximum number of chains per class.
const VARIANTS: usize = 6;

/// A Boolean chain, the first gate in the lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain(u64);

/// A gate of a chain: `(a ^ not_a) & (b ^ not_b) ^ not`, or `a ^ b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub a: usize,
    pub b: usize,
    pub operation: Operation,
    pub not_a: bool,
    pub not_b: bool,
    pub not: bool,
}

impl Chain {
    fn len(self) -> usize {
        (self.0.checked_ilog2().unwrap_or(0) / 8 + 1) as usize
    }

    fn steps(self) -> impl Iterator<Item = Step> {
        (0..self.len()).map(move |gate| {
            let code = (self.0 >> (8 * gate)) as usize & 0xff;
            let (pair, operation) = (code / 5, code % 5);
            let b = (1..10).find(|j| pair < j * (j + 1) / 2).unwrap_or(1);
            let kind = if operation == 3 { Operation::Xor } else { Operation::And };
            let (not_a, not_b) = (matches!(operation, 2 | 4), matches!(operation, 1 | 4));
            Step { a: pair - b * (b - 1) / 2, b, operation: kind, not_a, not_b, not: operation == 4 }
        })
    }
}

/// Evaluates a chain on these truth tables of its inputs.
fn eval(steps: &[Step], inputs: [u16; 4]) -> u16 {
    let invert = |value: u16, not: bool| if not { !value } else { value };
    let mut signals = [0; 4 + MAX_GATES];
    signals[..4].copy_from_slice(&inputs);
    let mut last = 0;
    for (gate, step) in steps.iter().enumerate() {
        let (a, b) = (invert(signals[step.a], step.not_a), invert(signals[step.b], step.not_b));
        last = match step.operation {
            Operation::And => invert(a & b, step.not),
            Operation::Xor => a ^ b,
        };
        signals[4 + gate] = last;
    }
    last
}

/// A chain with the NPN transformation that makes it compute a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Implementation<'a> {
    /// The gates of the chain.
    pub steps: &'a [Step],
    /// Input i of the chain is input `inputs[i].0` of the function, inverted if `inputs[i].1`.
    inputs: [(usize, bool); 4],
    /// Whether the output is inverted.
    not: bool,
}

impl Implementation<'_> {
    /// Returns the inputs of the chain, given those of the function.
    pub fn chain_inputs(&self, inputs: [Literal; 4]) -> [Literal; 4] {
        self.inputs.map(|(input, not)| inputs[input].invert_if(not))
    }

    /// Builds the function of these inputs. `add` adds a gate to the graph.
    pub fn build(
        &self,
        inputs: [Literal; 4],
        mut add: impl FnMut(Operation, Literal, Literal) -> Literal,
    ) -> Literal {
        let mut signals = [Literal::FALSE; 4 + MAX_GATES];
        signals[..4].copy_from_slice(&self.chain_inputs(inputs));
        let mut last = Literal::FALSE;
        for (gate, step) in self.steps.iter().enumerate() {
            let (a, b) = (signals[step.a].invert_if(step.not_a), signals[step.b].invert_if(step.not_b));
            last = add(step.operation, a, b).invert_if(step.not);
            signals[4 + gate] = last;
        }
        last.invert_if(self.not)
    }
}

/// All functions of four inputs with their optimal implementations.
pub(super) struct NpnLibrary {
    chains: Vec<Vec<Step>>,
    /// For each function: `(chain + 1) << 10 | transformation << 1 | not`, or 0.
    entries: Vec<[u32; VARIANTS]>,
    /// The 384 negations and permutations of the inputs.
    transformations: Vec<[(usize, bool); 4]>,
}

impl NpnLibrary {
    /// Returns the library, which the first call builds.
    pub fn get() -> &'static NpnLibrary {
        static LIBRARY: OnceLock<NpnLibrary> = OnceLock::new();
        LIBRARY.get_or_init(NpnLibrary::new)
    }

    fn new() -> NpnLibrary {
        let entries = vec![[0; VARIANTS]; 1 << 16];
        let mut library = NpnLibrary { chains: vec![], entries, transformations: input_transformations() };
        for class in CHAINS {
            for (variant, &word) in class.iter().enumerate() {
                library.chains.push(Chain(word).steps().collect());
                for transformation in 0..library.transformations.len() {
                    library.enter(variant, transformation);
                }
            }
        }
        library
    }

    /// Enters the last chain for the two functions that it computes with a transformation of its inputs.
    fn enter(&mut self, variant: usize, transformation: usize) {
        let chain = self.chains.len();
        let inputs = self.transformations[transformation]
            .map(|(input, not)| INPUTS[input] ^ u16::from(not).wrapping_neg());
        let function = eval(&self.chains[chain - 1], inputs);
        for (function, not) in [(function, 0), (!function, 1)] {
            let entry = &mut self.entries[usize::from(function)][variant];
            if *entry == 0 {
                *entry = (chain << 10 | transformation << 1 | not) as u32;
            }
        }
    }

    /// Returns the optimal implementations of a function; none for constants and projections.
    pub fn implementations(&self, function: u16) -> impl Iterator<Item = Implementation<'_>> + Clone {
        self.entries[usize::from(function)].iter().filter(|&&entry| entry != 0).map(|&entry| Implementation {
            steps: &self.chains[(entry >> 10) as usize - 1],
            inputs: self.transformations[(entry >> 1 & 0x1ff) as usize],
            not: entry & 1 == 1,
        })
    }

    /// Returns the minimum number of gates of a function.
    pub fn size(&self, function: u16) -> usize {
        self.implementations(function).next().map_or(0, |implementation| implementation.steps.len())
    }
}

/// Returns all permutations of four inputs, with all negations.
fn input_transformations() -> Vec<[(usize, bool); 4]> {
    let mut transformations = Vec::new();
    for code in 0..256usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
        if (0..4).all(|input| order.contains(&input)) {
            transformations.extend((0..16).map(|not| std::array::from_fn(|i| (order[i], not >> i & 1 == 1))));
        }
    }
    transformations
}

/// The chains of each class, by size.
#[rustfmt::skip]
#[allow(clippy::unreadable_literal)]
const CHAINS: [&[u64]; 220] = [
    &[0x0],
    &[0x3],
    &[0x2800, 0x2a00, 0x2d00, 0x2f00],
    &[0x2803, 0x2a03, 0x2c03, 0x2d03, 0x2f03, 0x3103],
    &[0x2900, 0x2c00, 0x2e00, 0x3100],
    &[0x2b00, 0x3000],
    &[0x2b03, 0x3003],
    &[0x3e2d00, 0x412800, 0x432800, 0x432a00, 0x461b00, 0x471d00],
    &[0x3c2f03, 0x461903, 0x461c00, 0x471c00, 0x471d03, 0x481903],
    &[0x422c00, 0x432900, 0x452c00, 0x481a00, 0x481b00, 0x4a1d00],
    &[0x3d3000, 0x3e3000, 0x403000, 0x412b00, 0x432b00, 0x452b00],
    &[0x3c3100, 0x3d2e00, 0x3e3100, 0x422900, 0x432c00, 0x452900],
    &[0x3d3003, 0x3e3003, 0x403003, 0x422b03, 0x432b03, 0x452b03],
    &[0x3d2f03, 0x3e3103, 0x402d03, 0x402e03, 0x422903, 0x452903],
    &[0x3d2d00, 0x3d2f00, 0x402d00, 0x402f00, 0x422800, 0x452800],
    &[0x3f2d00, 0x3f2f00, 0x442800, 0x442a00],
    &[0x491900, 0x491a00, 0x491b00, 0x491d00],
    &[0x481d00, 0x4a1900, 0x4a1a00, 0x4a1b00],
    &[0x460803, 0x460d03, 0x461703, 0x470803, 0x480803, 0x481703],
    &[0x3a2c00, 0x3a3100, 0x471503, 0x4a0c03, 0x4a0d00, 0x4a1700],
    &[0x352803, 0x3a2903, 0x3a2d03, 0x491300, 0x491600, 0x4a1600],
    &[0x461c03, 0x471c03, 0x481c03, 0x4a1c03],
    &[0x471903, 0x471a03, 0x471b03, 0x481c00, 0x481d03, 0x4a1b03],
    &[0x3f2d03, 0x3f2f03, 0x3f3103, 0x442803, 0x442a03, 0x442c03],
    &[0x3f2e00, 0x3f3100, 0x442900, 0x442c00],
    &[0x442b00, 0x491903, 0x491a03, 0x491b03, 0x491c00, 0x491d03],
    &[0x3f3003, 0x442b03, 0x491c03],
    &[0x60401703, 0x613c1703, 0x61420d03, 0x61430d03, 0x63401203, 0x662f0d03],
    &[0x57471003, 0x5c470a03, 0x642d0e03, 0x66281603, 0x68310703, 0x68310d00],
    &[0x563a2f03, 0x564a1100, 0x57491300, 0x5c490900, 0x613d1600, 0x66291100],
    &[0x56481700, 0x574a1700, 0x59353100, 0x5a4a0503, 0x5b352c00, 0x5e460903],
    &[0x56461203, 0x56481203, 0x574a1703, 0x5a4a0803, 0x5b470d03, 0x5e470803],
    &[0x5f440703, 0x5f440903, 0x60440603, 0x613f1503, 0x633f1103, 0x633f1303],
    &[0x5f401503, 0x60410e03, 0x61450503, 0x642c1200, 0x64310d00, 0x652e0d00],
    &[0x5f351b03, 0x603a1a03, 0x61351b03, 0x613a1b03, 0x63351d03, 0x66302b00],
    &[0x534a1b00, 0x584a1a00, 0x584a1b00, 0x662b1a00, 0x682e2b00, 0x68301a00],
    &[0x58452900, 0x5d3d2e00, 0x60331903, 0x613b1b03, 0x63381b03, 0x63391d03],
    &[0x613b1b00, 0x623e1100, 0x62430c00, 0x633e1600, 0x652a1800, 0x67281100],
    &[0x613f1000, 0x61440600, 0x63440500, 0x66300600, 0x66300b00, 0x682b1000],
    &[0x61400f00, 0x61450500, 0x61450b00, 0x633d0f00, 0x662c1000, 0x662c1500],
    &[0x4e422c00, 0x53452c00, 0x58471900, 0x62452a00, 0x63351900, 0x652f2b00],
    &[0x4e3e2f03, 0x4e412803, 0x4e432803, 0x4e4a1d03, 0x53481b03, 0x682f2900],
    &[0x534a1200, 0x584a0703, 0x613f0300, 0x64302203, 0x682b0503, 0x682b2403],
    &[0x62410300, 0x652a2203, 0x652a2703, 0x652d2203, 0x672f2403, 0x682f2403],
    &[0x623c1200, 0x62430d00, 0x672a1503, 0x672f0703, 0x67310503, 0x67310b03],
    &[0x623c1300, 0x62420700, 0x62420c00, 0x642b1800, 0x64300e00, 0x672c1600],
    &[0x61450d00, 0x633d1200, 0x662c1603, 0x66310a03, 0x682d0a03, 0x682f0a03],
    &[0x61401100, 0x633c1300, 0x633d1100, 0x63410e00, 0x65291800, 0x682e0700],
    &[0x4e452900, 0x533c3100, 0x533d2e00, 0x533e3100, 0x53402e00, 0x53432c00],
    &[0x4e3e3000, 0x53403000, 0x53432b00, 0x62420500, 0x67291000, 0x67291500],
    &[0x5f3a1c03, 0x5f3f1703, 0x5f440d03, 0x61351c03, 0x613a1c03, 0x652b1c03],
    &[0x662b0f03, 0x662b1103, 0x662b1403, 0x662b1903, 0x66302803, 0x68300603],
    &[0x4e481c03, 0x53461c03, 0x5d461c03, 0x672d2903, 0x672f2903, 0x682e2a03],
    &[0x58412c03, 0x5d402d03, 0x5d402e03, 0x5d402f03, 0x63391c03, 0x68281c03],
    &[0x533d3003, 0x5d403003, 0x672a1a03, 0x672e1a03, 0x672f1903, 0x68291b03],
    &[0x60430d03, 0x633e1203, 0x642c1203, 0x652a1203, 0x652f0d03, 0x68281703],
    &[0x4e452800, 0x53402f00, 0x60341a03, 0x603c1003, 0x603c1503, 0x60430b03],
    &[0x4e402f03, 0x4e412c03, 0x4e452903, 0x533d2f03, 0x53412c03, 0x53452a03],
    &[0x58461203, 0x58471203, 0x584a1703, 0x5d470d03, 0x5d480803, 0x5d4a0803],
    &[0x583a2e00, 0x5d470a03, 0x5d470b03, 0x5d480903, 0x5d4a0800, 0x62420a03],
    &[0x58481800, 0x584a1100, 0x5d3a2a03, 0x623c1703, 0x67281203, 0x672e0d03],
    &[0x7564302703, 0x825a2b0403, 0x8744290300, 0x8840302003, 0x893d301e03, 0x8b3f310300],
    &[0x73652d2703, 0x73672f0403, 0x74682e2003, 0x7868292303, 0x873e310400, 0x88452c2003],
    &[0x7465301303, 0x78682b0b03, 0x79584a0a03, 0x79623c2703, 0x7c662b0703, 0x7c662b2303],
    &[0x8065251d03, 0x8153351900, 0x86582f2e00, 0x88442c2800, 0x8849361b03, 0x8b49381b03],
    &[0x6c60351d03, 0x83572d2203, 0x835f1b0403, 0x855a292303, 0x8740312d00, 0x8a43402b00],
    &[0x8735300c03, 0x873a301903, 0x8835301c00, 0x8844300d00, 0x89493f0f03, 0x8b35302c03],
    &[0x8065291803, 0x85603d1403, 0x89452b0200, 0x8b352d0c03, 0x8b3f2e0200, 0x8b49291700],
    &[0x864e312903, 0x88422c2400, 0x89352e2c03, 0x89402e2100, 0x8b352e2c03, 0x8b3a2e2903],
    &[0x76603d1503, 0x8056471103, 0x8056481803, 0x88332b1903, 0x893b301b03, 0x8944290800],
    &[0x76613f1003, 0x8055351400, 0x8563440703, 0x8a39310603, 0x8a462c1303, 0x8b482d0c03],
    &[0x7f5d3d0300, 0x865d282003, 0x865d282503, 0x8a34291600, 0x8a3c2d0400, 0x8a3c2d1300],
    &[0x815c400300, 0x825e280900, 0x84592f1100, 0x845e282503, 0x89362a1403, 0x8b38281103],
    &[0x873f302503, 0x87442b0c03, 0x883f300f03, 0x883f301f03, 0x88442b0503, 0x8b442b0603],
    &[0x8740301003, 0x88432b0903, 0x8940301403, 0x8940302003, 0x8b3d300f03, 0x8b3d301403],
    &[0x883f312203, 0x88442c0403, 0x8b3f2e0403, 0x8b3f2e2703, 0x8b3f2f2003, 0x8b422b0300],
    &[0x883d312403, 0x883e310403, 0x89402e1f03, 0x8b3c2e2703, 0x8b3d2d2003, 0x8b3d2e2403],
    &[0x7f661c0803, 0x7f661c1203, 0x8260120803, 0x845f1c0d03, 0x84601c0d03, 0x8b4a170d03],
    &[0x7d641d0803, 0x7d641d1203, 0x7f53420c03, 0x7f53450a03, 0x7f65170e03, 0x884a170d00],
    &[0x7d5d3d1503, 0x7e5d3d0f03, 0x8158420703, 0x81681c0603, 0x844e310d00, 0x89481c0e03],
    &[0x7f58430d03, 0x7f671b1803, 0x81533c1703, 0x83631a0e03, 0x86631b1003, 0x8948120e00],
    &[0x883f300400, 0x88442b0400, 0x893f300400, 0x89442b0400, 0x8b3f300400, 0x8b442b0400],
    &[0x88412b0400, 0x88432b0400, 0x88442c0400, 0x893f2e0400, 0x8b3c300400, 0x8b3e300400],
    &[0x7e58391c03, 0x7e66130c03, 0x7f670f0a00, 0x824e281c03, 0x834e2c1c03, 0x864e291b00],
    &[0x6c652d0903, 0x7f681a0600, 0x834e2d0903, 0x844e2c1403, 0x8550452903, 0x8653290f03],
    &[0x883c310400, 0x883e310400, 0x88432c0400, 0x8b3c2e0400, 0x8b3e2e0400, 0x8b41290400],
    &[0x6c63410d00, 0x7b68280f03, 0x855c362903, 0x855e382903, 0x8744362803, 0x8b44332803],
    &[0x6c682c1700, 0x7163401200, 0x7b613e1803, 0x855b392a03, 0x8b44372903, 0x8b44392803],
    &[0x6c594a1203, 0x71603c1703, 0x71633d1203, 0x7b613e1703, 0x883e3b2e03, 0x8b3d342e03],
    &[0x834b302b00, 0x893f2d1603, 0x893f2e0f03, 0x893f2f1303, 0x8b32300d00, 0x8b3a2d1903],
    &[0x8650302900, 0x8833312b00, 0x8838310800, 0x883d311503, 0x8b3d2d1603, 0x8b432a0e03],
    &[0x855b470503, 0x855e470703, 0x8744310e03, 0x89442d0b03, 0x894a440a03, 0x8b483f1803],
    &[0x6c5d4a1a00, 0x8056420100, 0x8065160903, 0x8066130a03, 0x85592e2600, 0x89362e1c03],
    &[0x6c613f1600, 0x7f4e440c00, 0x835d2b1300, 0x8458311103, 0x845d280b03, 0x8a352e0c00],
    &[0x854f302803, 0x8557301603, 0x8a33310d03, 0x8a422a0803, 0x8a471a1203, 0x8a471b0803],
    &[0x7f59351700, 0x7f59440300, 0x815a3a0800, 0x8356300403, 0x835c2b0903, 0x835c2b0e03],
    &[0x8462190503, 0x855e332b00, 0x86582e1500, 0x8a42290600, 0x8a452c0a00, 0x8b44290e03],
    &[0x8254302c03, 0x844f302a03, 0x87452c0d03, 0x8936281703, 0x8b37291203, 0x8b372e2b03],
    &[0x6c603f1103, 0x6c68300800, 0x865c2c0503, 0x8a382e0503, 0x8a3b2f0603, 0x8b3d343000],
    &[0x7b5f361a03, 0x805a3b0900, 0x805b380503, 0x855a2c0800, 0x855e290800, 0x8b44280400],
    &[0x76603a1a03, 0x7b613a1d03, 0x85562f2003, 0x8557310403, 0x855e290403, 0x855e2a2003],
    &[0x7f583b1b03, 0x7f68160803, 0x814e420c03, 0x8360100d03, 0x8660100803, 0x8847170603],
    &[0x854f2e2a03, 0x8653312a03, 0x89352e2a03, 0x8a332a1503, 0x8a382c1103, 0x8b352f2903],
    &[0x6c633d1600, 0x6c662c1600, 0x76682e0c00, 0x825d290900, 0x8559393100, 0x8a3b310700],
    &[0x715e460903, 0x80593a2d00, 0x85563a3100, 0x8560190700, 0x8661190b00, 0x8b46160e03],
    &[0x855b282203, 0x883e300300, 0x883f312503, 0x893f2d2703, 0x893f2f1f03, 0x8b44292303],
    &[0x8164120800, 0x81661c0800, 0x8660170a03, 0x8661120603, 0x8846130803, 0x894a190803],
    &[0x8059430400, 0x805e3c0400, 0x85562e0400, 0x855a2c0400, 0x855b290400, 0x855e290400],
    &[0x7f5e3e0300, 0x7f681c1600, 0x82631c1800, 0x84592e2003, 0x84631b0703, 0x8b47191503],
    &[0x6c65291803, 0x7166310503, 0x71682f0703, 0x7663420800, 0x7b633e1200, 0x7b633e1700],
    &[0x7f53401600, 0x855e280503, 0x874a180603, 0x8832311900, 0x8a32311900, 0x8a41310600],
    &[0x7e661c1103, 0x7f681c0603, 0x8158450c03, 0x83532c1200, 0x894a1c0603, 0x8b481c0e03],
    &[0x825d2a2703, 0x845d282403, 0x865d292303, 0x865d292503, 0x8a3e2f2203, 0x8a452c2003],
    &[0x7666300503, 0x7b64312b03, 0x8556393003, 0x85573b3003, 0x86621c0603, 0x8b463f3003],
    &[0x88433b2b03, 0x8a3d323003, 0x8a40323003, 0x8a433d2b03, 0x8a461d1c03, 0x8b413d2b03],
    &[0x7f68170800, 0x8166170800, 0x83601c0e03, 0x86601c0603, 0x86611c0703, 0x86611c1403],
    &[0x88471d0b03, 0x88481d0903, 0x894a1a0703, 0x8b47190703, 0x8b48140800, 0x8b481a1803],
    &[0x6c65291700, 0x7168291200, 0x765f450503, 0x7660420503, 0x7660420703, 0x7b603d1503],
    &[0x7661440a03, 0x7663440903, 0x8a40310300, 0x8a42281e03, 0x8a42291f03, 0x8a432c2703],
    &[0x6c5a3a2900, 0x71574a1200, 0x765b470b03, 0x765c4a0503, 0x765e460903, 0x7b574a0f03],
    &[0x805a3c0403, 0x805b401e03, 0x8066221d03, 0x85603c1c00, 0x8b433f3000, 0x8b49201b03],
    &[0x7166310600, 0x7661450600, 0x7b61400f00, 0x7b61401500, 0x7b633d0f00, 0x7b633d1500],
    &[0x80573a2e03, 0x80593a2d03, 0x805e352803, 0x855f1d1503, 0x85601a0c03, 0x85601b1103],
    &[0x7e64170d03, 0x7e66120d03, 0x8360170803, 0x83611c0d03, 0x8846120803, 0x894a1c0803],
    &[0x8a3c2e0400, 0x8a3e310400, 0x8a41290400, 0x8a412c0400, 0x8a43290400, 0x8a432c0400],
    &[0x6c59471203, 0x6c5b460d03, 0x6c5e470803, 0x765b460d03, 0x7b56481203, 0x7b59481703],
    &[0x7b5f450803, 0x7b652d0803, 0x805e470803, 0x8b322b1703, 0x8b332b1703, 0x8b3a281c03],
    &[0x7b4e3d2d00, 0x80573b1303, 0x8059431f03, 0x8834300b03, 0x883c2b1103, 0x8b372b1a03],
    &[0x6c53432c00, 0x714e3c3100, 0x8056410403, 0x8059432703, 0x805a402403, 0x805b3d2003],
    &[0x6c58452903, 0x6c65291c03, 0x6c68291c03, 0x715d3d2e03, 0x8059323003, 0x805b380803],
    &[0x8055440403, 0x8056442303, 0x805e3f1e03, 0x8553310600, 0x8a47190a03, 0x8a4a1a0a03],
    &[0x715d4a0800, 0x765d470503, 0x765d470b03, 0x8a40302503, 0x8a412b0400, 0x8a452b0703],
    &[0x76652b1203, 0x855f3f1703, 0x894a2d0d03, 0x894a3e1203, 0x8a48401703, 0x8b46291203],
    &[0x6c682e0d03, 0x6c682f0d03, 0x71662c1203, 0x7663410803, 0x7663420d03, 0x7663430803],
    &[0x7667312303, 0x855d292003, 0x8a3f2d2203, 0x8a3f2f2403, 0x8a471c0803, 0x8a471c1703],
    &[0x715d471c03, 0x7166312803, 0x85532e2803, 0x855f1c0803, 0x8a352e2803, 0x8a35312803],
    &[0xa48658121003, 0xa571631c1200, 0xac714a3f1200, 0xb05847171603, 0xb15f443b0d03, 0xb3633f331203],
    &[0xa0854c1c1a03, 0xa176641c1203, 0xa48a43400d03, 0xac71412a2203, 0xad7965290400, 0xb0584e461c03],
    &[0xaa862d2b0703, 0xad81651c0900, 0xae80453f1200, 0xb05d3f281703, 0xb16244342b00, 0xb34e3f311603],
    &[0x8f81661c0800, 0xa57b60120903, 0xa9715f170c03, 0xae714a1a1703, 0xb05b3b2c1300, 0xb35b3d2c0400],
    &[0xa88736310d03, 0xab803d311703, 0xae7644290400, 0xb15d3c2b0400, 0xb15e58471203, 0xb35d574a0803],
    &[0x9e89442b0400, 0xb05745300400, 0xb26156440400, 0xb26456300400, 0xb35b342b0c00, 0xb3605a3f0400],
    &[0x8f884a170d00, 0xa77660120603, 0xab7b4a180d03, 0xad745c481703, 0xae7b47160d03, 0xb35c58481203],
    &[0x8f84601c1703, 0x947f64170803, 0x94825f120d03, 0x9e8b47120d03, 0xb05a4f461c03, 0xb2594d481703],
    &[0xab6b453f3003, 0xad7568301e03, 0xad7840282003, 0xaf54493d1c03, 0xb162331c0a03, 0xb362431c0403],
    &[0xab6948452b03, 0xad7e441a0a03, 0xb14f432c2b03, 0xb26156351700, 0xb2645e2b0e03, 0xb26855301603],
    &[0xab7334313003, 0xac77492d1700, 0xae832b291200, 0xb351432b2a03, 0xb36055440500, 0xb361563f1403],
    &[0xab7b40362b03, 0xac7b36280d03, 0xb25532311603, 0xb256382e1303, 0xb25c3c2c1e03, 0xb35d3e280300],
    &[0xac72473d3003, 0xae7a4a382b03, 0xb060401c1003, 0xb15e3d2b2503, 0xb35741312003, 0xb35a322b0e03],
    &[0xa28844180900, 0xa3845e290b00, 0xad8263170e03, 0xb05336281703, 0xb26340191000, 0xb34e48440903],
    &[0xa771562f2403, 0xa77b5f1c0c00, 0xad77492d1600, 0xb06345390700, 0xb1634e422803, 0xb25c39280903],
    &[0xaf6758311f03, 0xb0584a241703, 0xb061443f2403, 0xb15848271203, 0xb15848311703, 0xb35d472a1203],
    &[0xb0574a311703, 0xb15946391203, 0xb163433f2703, 0xb35f423a2a03, 0xb367562d2003, 0xb367562f2303],
    &[0xaa76412b0400, 0xac81443f0400, 0xae80412b0400, 0xb064302b0400, 0xb353471d1903, 0xb36258410400],
    &[0xad7f59430400, 0xad8156430400, 0xae803e2e0400, 0xb3652e2b0400, 0xb367412c0400, 0xb3675a2c0400],
    &[0x9981533d1103, 0x9e7d5d361a03, 0xac6d3b2a1b03, 0xad8137281d03, 0xae6b49291a03, 0xae7e32291d03],
    &[0x99864c302803, 0xad7c65290803, 0xad7f681a0d03, 0xaf58491e1903, 0xaf584a351603, 0xb0553f300f03],
    &[0x947668291003, 0x998944382903, 0x9e76662c1603, 0xad734a351603, 0xad7447161403, 0xb35738301c03],
    &[0xa9892b1e1103, 0xad7a4a400d03, 0xb15937301303, 0xb256402e2203, 0xb3513e333003, 0xb356322f2a03],
    &[0xa879610d0a03, 0xab80453b0803, 0xad775f352d03, 0xb15d48250803, 0xb35d461f0d03, 0xb3662b171200],
    &[0xa37c533e0300, 0xa38b351a1500, 0xa87e4e191803, 0xab7446361203, 0xb1635a3a2a03, 0xb25c402b0200],
    &[0xad74472e1103, 0xad74472e1403, 0xad7947290c03, 0xaf584a2d0f03, 0xaf5d4a280703, 0xb06044372b03],
    &[0xa6882e1c0403, 0xaa81341d1903, 0xae7849280c03, 0xae784a280503, 0xb0564a2d0f03, 0xb0574a301603],
    &[0xa3865b0c0600, 0xa76c59301600, 0xa87f5e0c0700, 0xa96c562d1503, 0xab8529180f00, 0xad793a2c0700],
    &[0xab80423b1c03, 0xad775f442303, 0xae7b3f2f2503, 0xaf635d3f1f03, 0xb0584a371203, 0xb05d402b0300],
    &[0x99805c360b00, 0xa3765c3b0600, 0xa87a63382b03, 0xad754a301403, 0xb04d3f2f2e03, 0xb15846311603],
    &[0x948b42290803, 0x9e88382c1203, 0xaf594a3a1c03, 0xb35147301c03, 0xb361381c0803, 0xb361391c1203],
    &[0x998749300603, 0x998835302a03, 0x9e89492b1003, 0xb2543d302d03, 0xb25937323003, 0xb25b3b332b03],
    &[0x94893f301103, 0xaf594a2d1203, 0xb25a462b0e03, 0xb25e362b2803, 0xb26057440503, 0xb2605c3f2503],
    &[0xaa71422b1f03, 0xab8040301003, 0xb0603f1b1203, 0xb34e442c0300, 0xb35d470d0a03, 0xb3662b221703],
    &[0x8f8a402e1e03, 0xa87b542f2c03, 0xac764a411203, 0xb06058352e03, 0xb2564a321c03, 0xb36053442c03],
    &[0x8f8b471c1103, 0x9488471c0603, 0xa87462363103, 0xad79472a0603, 0xad7f58420703, 0xb2662f291503],
    &[0xa07666170503, 0xa46c5d3c1803, 0xa4715d3d1403, 0xa4715d3e1303, 0xa6892b241203, 0xb05d58481803],
    &[0xa97654302f03, 0xae76372e1203, 0xb255463b3003, 0xb256372e1203, 0xb25e40372b03, 0xb25e47322b03],
    &[0xa96c57312d03, 0xad7e44190a03, 0xad7f3f1a1803, 0xae6c42372b03, 0xb25538302d03, 0xb25747300f03],
    &[0xa38656301403, 0xa4883f351700, 0xa489440d0300, 0xa78b2b171103, 0xa98a310e0600, 0xb25240362e00],
    &[0x998b43280403, 0xa78057180f03, 0xa96c582e0c00, 0xa98056150f03, 0xaa7b4a1d0703, 0xae7b3e2f2703],
    &[0x94835d291303, 0x94855e332a03, 0x9982631c1803, 0xa38657171003, 0xae7f44370803, 0xb25a3a362803],
    &[0xa37368301003, 0xa68730180e03, 0xa9892b1f1003, 0xab822b1d0e03, 0xae842b110703, 0xb25f361d1c00],
    &[0xa58a2c161300, 0xa78158120c00, 0xa988301d0c03, 0xab753b310f03, 0xae7443383003, 0xb356372f1203],
    &[0x8f7568301f03, 0x947461440400, 0x947465301303, 0x9e883c311303, 0xad73471b0f03, 0xad77471a1603],
    &[0xa781521c1903, 0xa9765e292303, 0xa97e511c1b03, 0xac8142341c03, 0xaf544a1c1a03, 0xb06040391c03],
    &[0x9e8b352a1d03, 0xa382562d0403, 0xac764a201b03, 0xad862f150d03, 0xb25b472c1603, 0xb3613e363003],
    &[0xa28b441c0300, 0xa78b302b2403, 0xa97f531d1903, 0xae7d3f1a1703, 0xae7d44190803, 0xae8330100d03],
    &[0xab6c3c310403, 0xae713d2f1e03, 0xb061450e0d03, 0xb163413e0803, 0xb3642f0e0803, 0xb3652e0b0803],
    &[0xa5815a0d0903, 0xae6c43282203, 0xae7d453e0d03, 0xae7e423e1703, 0xae8231230803, 0xaf594a171103],
    &[0xa8784f3a2c00, 0xad74392e1200, 0xb24d452c2803, 0xb24f452a2903, 0xb250452c2803, 0xb2513d2f2e03],
    &[0x8f865a2b0a00, 0x94865a2c0500, 0x99815b3d0400, 0x9e8b38281103, 0xac7b39280900, 0xb36658310400],
    &[0x8f8b3e2e2203, 0xa6805c0d0900, 0xa98056171100, 0xad81430e0800, 0xae852a151103, 0xae852e0b0503],
    &[0x998835312903, 0x9e8453312903, 0xad7449373103, 0xad8329161203, 0xad862e220803, 0xb24c452a2803],
    &[0xad73442e0400, 0xad75442e0400, 0xad7a3f290400, 0xb25641300400, 0xb25941300400, 0xb25a3e2b0400],
    &[0xad7e641c0d03, 0xaf674a170803, 0xb0584a351703, 0xb162481c0803, 0xb35848300d03, 0xb35d462b1203],
    &[0x947b652f0800, 0x9e88432b0503, 0xa881523d1c03, 0xa88b2a170800, 0xad7345302703, 0xb15d3c2b2403],
    &[0x8f7b682f0d03, 0x8f873f311703, 0x998834300d03, 0xa3765e470d03, 0xa388381c0803, 0xad862d170803],
    &[0x9e76603a1a03, 0xa37b59420300, 0xa38b443f1f03, 0xa87b562e0403, 0xa8814b1c1a03, 0xb26040331c03],
    &[0xb15e472b0803, 0xb35546301203, 0xb35548351703, 0xb35648301203, 0xb35f3e3a3003, 0xb35f43352b03],
    &[0xa87b592d2203, 0xaa7b472c0d03, 0xaf6731251c03, 0xb06058442203, 0xb25f3e3b1c03, 0xb367291e1c03],
    &[0x997d53430903, 0x997d68191703, 0x998b48120903, 0x9e7e65160d03, 0x9e7f68140d03, 0x9e8158331b03],
    &[0xa38944290503, 0xac7b35280b03, 0xb1623c1d1203, 0xb16255440c03, 0xb25648331700, 0xb36728170903],
    &[0x948361170803, 0x948463170803, 0x997f68120803, 0x998165120d03, 0x9e7e66120d03, 0x9e8165170803],
    &[0x9486611a0600, 0x9e86601a0c00, 0xa378533d2303, 0xa379650a0803, 0xa87753433000, 0xa87c60370d03],
    &[0x99805b3d0400, 0x9e8059343103, 0x9e8059422303, 0xa3765e3d0400, 0xa8734f373003, 0xa8745c3b3003],
    &[0x9486621c0500, 0xa37b59353103, 0xa3865d0a0703, 0xb2554a451003, 0xb25a3a2c0503, 0xb2633f1a1503],
    &[0xa388351c0d00, 0xad8230271c03, 0xad8630130d03, 0xb25e462b0d03, 0xb25e47350d03, 0xb26142352b03],
    &[0x8f865a2b0c03, 0x94835b2b0903, 0x948459300f03, 0x948657301103, 0x997f5e3f0300, 0x99815a3f0400],
    &[0x8f835c2b0e00, 0x9e71613f1403, 0xa3835d1e0d03, 0xad6c42291f03, 0xb24e412c0403, 0xb25d3b291103],
    &[0x99855b290400, 0x9e8059430400, 0xa8765a2c0400, 0xa8765c2c0400, 0xa8814b1d1903, 0xa881511b1a03],
    &[0x8f855b392c00, 0x997f4e420c00, 0x998a3b310700, 0xa389440a0700, 0xa8715b342c00, 0xb25647161503],
    &[0xdc85621c190300, 0xdc85631c190300, 0xdc86621c190300, 0xdc86631c190300, 0xde85621c190300, 0xde85631c190300],
    &[0xdf82631c190300, 0xe082631c190300],
    &[0xc1af6344080300, 0xc1af63440d0300, 0xc1b163440d0300, 0xc6b0613f120300, 0xc6b3613f170300, 0xcbb1681c100300],
    &[0xc1b16830080300, 0xcbaf681c080300, 0xda97662e120300, 0xda9a662e170300, 0xda9d682c080300, 0xda9f66290d0300],
    &[0xc1a378680b0300, 0xc1a37a680b0300, 0xcb9e7368100300, 0xda9668300f0300, 0xda9d682b050300, 0xda9d682b0b0300],
    &[0xdf86631c190300],
    &[0xcbb1681c170100, 0xcbb3661c080200, 0xcbb3661c0d0100, 0xdaa25942100300, 0xdaa45b3d060300, 0xdaa45b3d0b0300],
    &[0xc1ae7f3f120300, 0xcbb15e3c080300, 0xcbb35c3e080300, 0xd5af452c040300, 0xdaa95631160300, 0xdc816844080300],
    &[0xdb99613e170300, 0xde766430170300, 0xde766662120300, 0xde80651c080300, 0xe07b642b0d0300, 0xe0827663170300],
    &[0xbc8f8945290100, 0xcb997c65080300, 0xd5b3422b120300, 0xda976662120300, 0xda9f6662080300, 0xdaae42300d0300],
    &[0xc1a87863080200, 0xc1a8794e2c0200, 0xc1a879532c0100, 0xd099784e290200, 0xd59a6c42300200, 0xdf7968290a0100],
    &[0xd58f7544310200, 0xd58f793f290200, 0xdf776341110300, 0xdf78652b050300, 0xdf79623d090300, 0xdf7a652b0c0300],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_implementation_computes_its_function() {
        let library = NpnLibrary::get();
        for function in 0..=u16::MAX {
            for implementation in library.implementations(function) {
                let not = |value: u16, not: bool| if not { !value } else { value };
                let inputs = implementation.inputs.map(|(input, inverted)| not(INPUTS[input], inverted));
                assert_eq!(not(eval(implementation.steps, inputs), implementation.not), function);
            }
        }
    }

    #[test]
    fn sizes_agree_with_knuth() {
        // The Art of Computer Programming, 7.1.2, table 1: how many functions need 0, 1, ... 7 gates.
        let mut functions = [0; 8];
        for function in 0..=u16::MAX {
            functions[NpnLibrary::get().size(function)] += 1;
        }
        assert_eq!(functions, [10, 60, 456, 2474, 10624, 24184, 25008, 2720]);
        let sizes = CHAINS.map(|class| Chain(class[0]).len());
        let classes: Vec<usize> = (1..8).map(|size| sizes.iter().filter(|&&s| s == size).count()).collect();
        assert_eq!(classes, [2, 5, 20, 34, 75, 72, 12]);
    }

    #[test]
    fn all_chains_of_a_class_have_the_same_size() {
        for class in CHAINS {
            assert!(class.iter().all(|&chain| Chain(chain).len() == Chain(class[0]).len()));
        }
    }
}
