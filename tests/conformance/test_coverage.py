"""Every op we promise a rule for is compared with torch on its OpInfo samples by one of the files here."""

import runpy
from pathlib import Path

from harness import asked, database

PROMISED = """
add sub mul div neg abs exp log sqrt pow clamp sin cos erf log1p expm1 logsumexp cumsum cumprod prod amax amin
max.reduction_with_dim norm var std topk sort where masked_fill index_select split chunk stack unbind expand permute
einsum bmm baddbmm nn.functional.linear nn.functional.rms_norm nn.functional.elu nn.functional.selu nn.functional.celu
nn.functional.softplus nn.functional.softsign nn.functional.hardtanh nn.functional.hardsigmoid nn.functional.hardswish
nn.functional.glu nn.functional.logsigmoid nn.functional.dropout nn.functional.unfold
nn.functional.grid_sample nn.functional.interpolate nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d nn.functional.max_pool1d
nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.avg_pool1d nn.functional.avg_pool2d
nn.functional.avg_pool3d nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool2d nn.functional.embedding
nn.functional.embedding_bag nn.functional.mse_loss nn.functional.l1_loss nn.functional.huber_loss
nn.functional.smooth_l1_loss nn.functional.cross_entropy nn.functional.nll_loss nn.functional.binary_cross_entropy
nn.functional.binary_cross_entropy_with_logits nn.functional.kl_div nn.functional.cosine_embedding_loss
nn.functional.triplet_margin_loss nn.functional.ctc_loss nn.functional.relu nn.functional.leaky_relu
nn.functional.prelu sigmoid tanh nn.functional.gelu nn.functional.silu nn.functional.mish softmax log_softmax sum mean
matmul transpose reshape flatten unsqueeze squeeze cat select narrow gather scatter scatter_add nn.functional.pad repeat
nn.functional.batch_norm nn.functional.layer_norm nn.functional.group_norm nn.functional.instance_norm
nn.functional.scaled_dot_product_attention nn.functional.pixel_shuffle nn.functional.upsample_nearest
""".split()


def compared():
    """What the files of this folder ask for: each does so when it is imported."""
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name != Path(__file__).name:
            runpy.run_path(str(path))
    return asked


def test_everything_promised_is_compared():
    promised = {name.split(".reduction")[0] for name in PROMISED}
    assert promised <= set(database()), f"no OpInfo entry: {promised - set(database())}"
    assert promised - compared() == set()


def test_more_than_eighty_ops_are_compared():
    assert len(compared()) > 200
