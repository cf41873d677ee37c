from .backbones import (
    Backbone as Backbone,
    create_backbone as create_backbone,
    list_backbones as list_backbones,
    list_pretrained as list_pretrained,
)
from .episode import Episode as Episode
from .errors import FairContextError as FairContextError, ImageError as ImageError
from .imageio import load_image as load_image
from .labels import LabelSpace as LabelSpace
from .methods import (
    CTPT as CTPT,
    DMN as DMN,
    DPE as DPE,
    ECALP as ECALP,
    FCL as FCL,
    MTA as MTA,
    RLCF as RLCF,
    RTPT as RTPT,
    TDA as TDA,
    TPS as TPS,
    TPT as TPT,
    TTL as TTL,
    ZERO as ZERO,
    BoostAdapter as BoostAdapter,
    Method as Method,
    OnZeta as OnZeta,
    RLCFEncoder as RLCFEncoder,
    StreamMethod as StreamMethod,
    StreamState as StreamState,
    ZeroShot as ZeroShot,
    create_method as create_method,
    list_methods as list_methods,
)
from .types import Prediction as Prediction
from .views import ViewRecipe as ViewRecipe

__version__: str
