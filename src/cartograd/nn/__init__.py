"""The modules that torch.nn does not have. They are ``torch.nn.Module``s, and run on torch's tensors and on ours."""

from cartograd.nn import encoders as encoders
from cartograd.nn.bidirectional import Bidirectional as Bidirectional
from cartograd.nn.class_tokens import ClassTokens as ClassTokens
from cartograd.nn.mamba3 import Mamba3 as Mamba3
from cartograd.nn.mamba3 import Mamba3Cache as Mamba3Cache
from cartograd.nn.official import load_official as load_official
from cartograd.nn.stack import Mamba3Layer as Mamba3Layer
from cartograd.nn.stack import Mamba3Stack as Mamba3Stack
from cartograd.nn.stack import SwiGLU as SwiGLU
