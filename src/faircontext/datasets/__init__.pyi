from .check import Report as Report, check_dataset as check_dataset, check_present as check_present
from .collages import Collages as Collages, cells_of as cells_of, write_collages as write_collages
from .containers import InputOptions as InputOptions
from .inputs import Inputs as Inputs, collect as collect
from .listing import ImageList as ImageList
from .load import load_dataset as load_dataset
from .spec import (
    CATALOGUE as CATALOGUE,
    CORRUPTED as CORRUPTED,
    DATASETS as DATASETS,
    Dataset as Dataset,
    DatasetSpec as DatasetSpec,
    Sample as Sample,
    expected_tree as expected_tree,
    list_datasets as list_datasets,
    locate as locate,
)
