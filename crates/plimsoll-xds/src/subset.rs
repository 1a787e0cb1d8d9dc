//! What files and bytes have in common about subset load balancing.

use plimsoll_core::model::cluster::LocalityPolicy;
use plimsoll_core::model::subset::LbSubsetConfig;
use plimsoll_core::units::FieldError;

/// What `lb_subset_config` asks of the legacy policy around it; the policy extension asks nothing.
/// The path of an error starts inside the message.
pub(crate) fn check_legacy(
    config: &LbSubsetConfig,
    locality: Option<&LocalityPolicy>,
) -> Result<(), FieldError> {
    let weighted = matches!(locality, Some(LocalityPolicy::LocalityWeighted));
    if config.locality_weight_aware() && !weighted {
        let reason = "needs common_lb_config.locality_weighted_lb_config";
        return Err(FieldError::new("locality_weight_aware", reason));
    }
    Ok(())
}
