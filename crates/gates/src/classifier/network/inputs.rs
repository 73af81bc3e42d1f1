//! The input of a network: bits, which are planes if they are those of images.

use gatework_logic::classifier::{Encoder, FeatureKind};

use super::NetworkError;

/// Most planes of a channel of an image.
const MAX_PLANES: usize = 64;

/// The input bits of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Number of bits.
    pub bits: usize,
    /// The planes that convolutions read.
    pub planes: Option<BitPlanes>,
    /// How much each bit tells about the class, if it is known: half of the candidates of learned wires of the first layer are drawn
    /// in proportion to it.
    pub relevance: Option<Vec<f32>>,
}

/// The bits of an image as planes: one for each channel and threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitPlanes {
    /// Number of planes, height and width.
    pub size: [usize; 3],
    /// The bit of each place, `[plane][y][x]`; none if the encoder leaves it out, because it is constant.
    pub bits: Vec<Option<u32>>,
}

impl From<usize> for Inputs {
    /// Bits that are not those of images.
    fn from(bits: usize) -> Inputs {
        Inputs { bits, planes: None, relevance: None }
    }
}

impl Inputs {
    /// Returns the planes of an encoder for images.
    pub fn planes(encoder: &Encoder) -> Result<Inputs, NetworkError> {
        let [channels, height, width] = encoder.shape().ok_or(NetworkError::NoImage)?;
        let pixels = height * width;
        let thresholds: Vec<&[f32]> = encoder
            .features()
            .iter()
            .map(|feature| match &feature.kind {
                FeatureKind::Numeric(thresholds) => Ok(&thresholds[..]),
                FeatureKind::Categorical(_) => Err(NetworkError::NoImage),
            })
            .collect::<Result<_, _>>()?;
        let starts: Vec<u32> = encoder.ranges().map(|range| range.start as u32).collect();
        let mut bits = Vec::new();
        for channel in 0..channels {
            let of_channel = channel * pixels..(channel + 1) * pixels;
            let mut all = thresholds[of_channel.clone()].concat();
            all.sort_unstable_by(f32::total_cmp);
            all.dedup();
            if all.len() > MAX_PLANES {
                return Err(NetworkError::Thresholds { found: all.len() });
            }
            for threshold in all {
                bits.extend(of_channel.clone().map(|pixel| {
                    let place = thresholds[pixel].iter().position(|&other| other == threshold)?;
                    Some(starts[pixel] + place as u32)
                }));
            }
        }
        let size = [bits.len() / pixels.max(1), height, width];
        Ok(Inputs { bits: encoder.bits(), planes: Some(BitPlanes { size, bits }), relevance: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::classifier::Feature;

    #[test]
    fn a_plane_is_a_threshold_of_a_channel() {
        let pixel = |name: &str, thresholds: &[f32]| Feature::numeric(name, thresholds.to_vec());
        let features = vec![pixel("a", &[1.0, 2.0]), pixel("b", &[]), pixel("c", &[2.0]), pixel("d", &[7.0])];
        let encoder = Encoder::new(features, Some([2, 1, 2])).unwrap();
        let planes = Inputs::planes(&encoder).unwrap().planes.unwrap();
        assert_eq!(planes.size, [4, 1, 2]);
        let bits = [Some(0), None, Some(1), None, Some(2), None, None, Some(3)];
        assert_eq!(planes.bits, bits, "thresholds 1 and 2 of the first channel, 2 and 7 of the second");
    }

    #[test]
    fn tables_and_thresholds_of_single_pixels_are_refused() {
        let thresholds = |pixel: usize| (0..40).map(|i| (pixel + 2 * i) as f32).collect();
        let many = |pixel: usize| Feature::numeric(pixel.to_string(), thresholds(pixel));
        let encoder = |shape| Encoder::new(vec![many(0), many(1)], shape).unwrap();
        assert_eq!(Inputs::planes(&encoder(None)), Err(NetworkError::NoImage));
        assert_eq!(Inputs::planes(&encoder(Some([1, 2, 1]))), Err(NetworkError::Thresholds { found: 80 }));
        assert_eq!(Inputs::planes(&encoder(Some([2, 1, 1]))).unwrap().planes.unwrap().size, [80, 1, 1]);
    }
}
